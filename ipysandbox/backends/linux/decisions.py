"""What was decided about each system call, by name, and about each option of prctl.

The lists were written from the x86-64 and generic tables with the question "what does research code need?", and
compared with the default profiles of container engines; what those allow and these refuse is commented. Calls whose
arguments decide are in none of them: see ``seccomp.rules``.
"""

from __future__ import annotations

from . import libc

ALLOWED = frozenset(
    """
    accept accept4 access alarm arch_prctl bind brk cachestat capget chdir chown clock_getres clock_gettime
    clock_nanosleep close copy_file_range dup dup2 dup3 epoll_create epoll_create1 epoll_ctl
    epoll_ctl_old epoll_pwait epoll_pwait2 epoll_wait epoll_wait_old eventfd eventfd2 execve execveat exit
    exit_group faccessat faccessat2 fadvise64 fchdir fchown fchownat  fdatasync fgetxattr flistxattr
    flock fork fremovexattr fstat fstatfs fsync ftruncate futex futex_wait futex_waitv futex_wake
    futex_requeue futimesat get_robust_list getcpu getcwd getdents getdents64 getegid geteuid getgid getgroups
    getitimer getpeername getpgid getpgrp getpid getppid getpriority getrandom getresgid getresuid getrlimit
    getrusage getsid getsockname getsockopt gettid gettimeofday getuid getxattr getxattrat inotify_add_watch
    inotify_init inotify_init1 inotify_rm_watch ioprio_get kill
    lchown lgetxattr link linkat listen listxattr listxattrat llistxattr lremovexattr lseek
    lstat map_shadow_stack membarrier mincore mlock mlock2 mlockall mmap mprotect mremap mseal
    msync munlock munlockall munmap nanosleep newfstatat pause pidfd_open pidfd_send_signal pipe pipe2 pkey_alloc
    pkey_free pkey_mprotect poll ppoll pread64 preadv preadv2 process_mrelease pselect6 pwrite64 pwritev
    pwritev2 read readahead readlink readlinkat readv recvfrom recvmmsg recvmsg removexattr removexattrat rename
    renameat restart_syscall rmdir rseq rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo
    rt_sigreturn rt_sigsuspend rt_sigtimedwait rt_tgsigqueueinfo sched_get_priority_max sched_get_priority_min
    sched_getaffinity sched_getattr sched_getparam sched_getscheduler sched_rr_get_interval sched_setparam
    sched_setscheduler sched_yield select sendmmsg sendmsg sendto
    set_robust_list set_tid_address setfsgid setfsuid setgid setgroups setitimer setpgid setpriority setregid
    setresgid setresuid setreuid setsid setuid shutdown sigaltstack
    signalfd signalfd4 stat statfs statx symlink symlinkat sync sync_file_range syncfs sysinfo
    tgkill time timer_create timer_delete timer_getoverrun timer_gettime timer_settime timerfd_create
    timerfd_gettime timerfd_settime times tkill truncate umask uname unlink unlinkat utime utimensat utimes vfork
    wait4 waitid write writev
    """.split()
)
# chmod, chown, utime and calls that read or remove attributes are open because the mounts decide what they can reach;
# without mounts they are not.

#: Refused with EPERM, and told to the trail: no library makes one of these by itself, or if so, it is worth knowing.
REFUSED = frozenset(
    """
    acct add_key adjtimex bpf capset chroot clock_adjtime clock_settime delete_module fanotify_init fanotify_mark
    finit_module fsconfig fsmount fsopen fspick init_module ioperm iopl io_uring_enter io_uring_register io_uring_setup
    kcmp kexec_file_load kexec_load keyctl lookup_dcookie lsm_set_self_attr modify_ldt mount mount_setattr move_mount
    name_to_handle_at nfsservctl open_by_handle_at open_tree open_tree_attr perf_event_open pidfd_getfd pivot_root
    process_madvise process_vm_readv process_vm_writev ptrace quotactl quotactl_fd reboot request_key setdomainname
    sethostname setns settimeofday swapoff swapon syslog umount2 unshare userfaultfd vhangup
    """.split()
)

#: Refused with EPERM and not told: libraries try these as a matter of course (memory and processor placement, older
#: ways to share memory, facts about mounts), and none of them reaches anything outside.
REFUSED_QUIETLY = frozenset(
    """
    file_getattr file_setattr get_mempolicy io_cancel io_destroy io_getevents io_pgetevents io_setup io_submit
    ioprio_set listmount lsm_get_self_attr lsm_list_modules mbind migrate_pages move_pages mq_getsetattr mq_notify
    mq_open mq_timedreceive mq_timedsend mq_unlink msgctl msgget msgrcv msgsnd remap_file_pages sched_setaffinity
    sched_setattr semctl semget semop semtimedop set_mempolicy set_mempolicy_home_node shmat shmctl shmdt shmget
    statmount sysfs ustat
    """.split()
)
# shm*, msg*, sem* and mq_*: memory that no mount bounds and no process owns; POSIX shared memory and semaphores lie on
# the sized /dev/shm. The bounds that a new IPC namespace begins with are 32,000 sets of 32,000 semaphores, 64 bytes
# each, and an ordinary user may not lower them.
# sched_setaffinity: affinity is how `cpus` is held where no control group can.

#: Answered as if the kernel were older; a program then takes its other way.
#: clone3 and openat2 keep flags in memory, where a filter can't look; memfd pages belong to no mount and no process.
#: landlock_*: a rule keeps its file, also a removed one, and no descriptor shows it; ours are made before.
#: uprobe and uretprobe are made by the kernel's own trampolines, for which it leaves the filter out (Linux 6.14).
#: The rest never had, or no longer has, an implementation.
ENOSYS = frozenset(
    """
    clone3 landlock_add_rule landlock_create_ruleset landlock_restrict_self openat2 memfd_create memfd_secret
    _sysctl afs_syscall create_module get_kernel_syms get_thread_area getpmsg putpmsg query_module security
    set_thread_area tuxcall uprobe uretprobe uselib vserver
    """.split()
)

#: Answered as by a file system that lacks it. A gigabyte is reserved in microseconds, faster than any watch over a
#: plain folder can see; posix_fallocate(3) then writes instead. A default access list (acl(5)) would stay on a folder
#: in results/ and decide there in place of the user's umask; programs that copy attributes go on without.
UNSUPPORTED = frozenset("fallocate fsetxattr lsetxattr setxattr setxattrat".split())

#: Answered as for a file of a kind that the call does not know; a program then reads and writes. A pipe or a socket
#: would hold the page that a byte lies in, a huge one whole, after its memory was unmapped or its file cut: counted
#: nowhere but by a control group. Not told: whoever copies a file tries (shutil, asyncio, Go, Rust, Java, libuv).
EINVAL = frozenset("sendfile splice tee vmsplice".split())

#: Let through by the monitor, which notes where to: the network namespace is what closes the network.
SEEN = frozenset(("connect",))

# What is different where no namespaces are (``confined``). Names in these tables are also in those above, whose answer
# they replace.
#: Refused there, because no mount and no namespace bounds what the call reaches. inotify tells names of files anywhere,
#: and its instances are the user's, of whom there are few (inotify(7), max_user_instances).
CONFINED_REFUSED = frozenset(
    """
    bind connect inotify_add_watch inotify_init inotify_init1 listen process_mrelease
    """.split()
)
#: Answered as by a file system without attributes: by path they would be read and set anywhere.
CONFINED_UNSUPPORTED = frozenset(
    """
    fremovexattr fsetxattr getxattr getxattrat lgetxattr listxattr listxattrat llistxattr lremovexattr lsetxattr
    removexattr removexattrat setxattr setxattrat
    """.split()
)
#: Done by the monitor on the caller's behalf, inside writable folders (see emulate.py): Landlock knows none of them.
CONFINED_EMULATED = frozenset(
    """
    chmod chown fchmod fchmodat fchmodat2 fchown fchownat futimesat lchown truncate utime utimensat utimes
    """.split()
)
#: Answered by the monitor, which tells only of files that the policy shows (see metadata.py).
CONFINED_TOLD = frozenset("access faccessat faccessat2 lstat newfstatat readlink readlinkat stat statx".split())
#: Let through by the monitor, up to the limit on tasks (see tasks.py): RLIMIT_NPROC counts other sandboxes' as well.
CONFINED_COUNTED = frozenset("clone fork vfork".split())
#: Let through by the monitor where Landlock keeps signals inside, which notes those to somebody else.
CONFINED_SEEN = frozenset(("kill", "pidfd_send_signal"))
#: Done by the monitor where Landlock does not keep them inside yet (see emulate_signals.py).
SIGNALS = frozenset("kill pidfd_send_signal rt_sigqueueinfo rt_tgsigqueueinfo tgkill tkill".split())

#: What prctl may be asked for (linux/prctl.h), on both machines: the kernel refuses what belongs to another. What is
#: not here fails as by an older kernel, and is told. PR_SET_MM changes what a process is to those who look,
#: PR_FUTEX_HASH takes memory that nobody counts, PR_SCHED_CORE says who shares a core with whom, PR_SET_MEMORY_MERGE
#: tells what others have in memory; the rest needs rights, or is for debuggers, checkpoints and other machines.
PRCTL = frozenset(
    (
        *(1, 2),  # PDEATHSIG
        *(3, libc.PR_SET_DUMPABLE),  # the latter to 1 alone, see below
        *(7, 8),  # KEEPCAPS: there are none to keep
        *(15, 16),  # NAME
        *(21, 22),  # SECCOMP: a filter of one's own refuses more
        *(23, 27, 47),  # CAPBSET_READ, GET_SECUREBITS, CAP_AMBIENT: facts, and rights that nobody has to raise
        *(29, 30),  # TIMERSLACK
        *(36, 37),  # CHILD_SUBREAPER: orphans stay below it
        *(38, 39),  # NO_NEW_PRIVS
        *(41, 42),  # THP_DISABLE: allocators, the JVM
        *(50, 51, 63, 64),  # SVE and SME vector lengths: the JVM on aarch64
        *(52, 53),  # SPECULATION_CTRL
        *(54, 60, 61),  # pointer authentication on aarch64: keys of one's own
        *(55, 56),  # TAGGED_ADDR_CTRL: memory tagging on aarch64, of glibc's malloc
        *(65, 66),  # MDWE: no memory that is both written and run
        *(74, 75, 76),  # SHADOW_STACK_STATUS: glibc on aarch64
        0x41555856,  # GET_AUXV
        0x59616D61,  # SET_PTRACER: MPI and crash handlers name who may trace, which nobody in here may
    )
)
#: Names of mappings: memory for each, and words of the code's choice in the maps that the meters read. Go, V8 and the
#: JVM name as a matter of course, and go on where the kernel was built without.
PR_SET_VMA = 0x53564D41
