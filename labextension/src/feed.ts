/** The websocket to the server: states and audit records as they come, connected again after every break. */
import { URLExt } from '@jupyterlab/coreutils';
import type { ServerConnection } from '@jupyterlab/services';
import { Signal } from '@lumino/signaling';

import type { AuditRecord, Feed, FeedStatus, Sandbox, Snapshot } from './tokens';

/** From one try to the next, doubled each time (milliseconds). */
const FIRST_RETRY = 500;
const LAST_RETRY = 15_000;
/** The server says something every five seconds; a connection that is silent for so long is none. */
const SILENCE = 20_000;
/** The pace while the browser's tab is in the background. */
const HIDDEN_INTERVAL = 5000;

interface StateMessage {
  type: 'state';
  now: number;
  supervisors: {
    id: string;
    kernel: string | null;
    error: string | null;
    sandboxes: Omit<Sandbox, 'supervisor' | 'kernel'>[];
  }[];
  message: string | null;
}
type Message = StateMessage | { type: 'records'; records: AuditRecord[] };

export class SocketFeed implements Feed {
  readonly statusChanged = new Signal<this, FeedStatus>(this);
  readonly state = new Signal<this, Snapshot>(this);
  readonly records = new Signal<this, AuditRecord[]>(this);
  private _status: FeedStatus = 'closed';
  private _disposed = false;
  private socket: WebSocket | null = null;
  private timer = 0;
  private retryIn = FIRST_RETRY;
  private interval = 2000;
  /** The number of the last record: from there on the server goes on after a break. */
  private after: number | null = null;

  constructor(private readonly settings: ServerConnection.ISettings) {
    document.addEventListener('visibilitychange', this.onVisibility);
  }

  get status(): FeedStatus {
    return this._status;
  }

  get isDisposed(): boolean {
    return this._disposed;
  }

  dispose(): void {
    if (this._disposed) {
      return;
    }
    this._disposed = true;
    document.removeEventListener('visibilitychange', this.onVisibility);
    window.clearTimeout(this.timer);
    this.socket?.close();
    Signal.clearData(this);
  }

  open(interval: number): void {
    this.interval = interval;
    if (this._status === 'closed') {
      this.connect();
    } else {
      this.tellPace();
    }
  }

  retry(): void {
    if (this._status === 'lost') {
      this.retryIn = FIRST_RETRY;
      this.connect();
    }
  }

  private connect(): void {
    window.clearTimeout(this.timer);
    const { settings } = this;
    const query = new URLSearchParams();
    if (this.after !== null) {
      query.set('after', String(this.after));
    }
    if (settings.appendToken && settings.token !== '') {
      query.set('token', settings.token);
    }
    const asked = query.toString();
    const url = URLExt.join(settings.wsUrl, 'ipysandbox', 'feed') + (asked ? `?${asked}` : '');
    if (this._status === 'closed') {
      this.become('connecting');
    }
    const socket = new settings.WebSocket(url);
    this.socket = socket;
    socket.onopen = () => {
      this.tellPace();
      this.waitForNext();
    };
    socket.onmessage = event => {
      if (this.socket === socket && !this._disposed) {
        this.waitForNext();
        this.receive(event.data);
      }
    };
    socket.onclose = () => {
      if (this.socket === socket && !this._disposed) {
        this.lost();
      }
    };
    // A connection that is never answered has no event of its own.
    this.waitForNext();
  }

  private waitForNext(): void {
    window.clearTimeout(this.timer);
    this.timer = window.setTimeout(() => {
      const { socket } = this;
      this.socket = null;
      socket?.close();
      this.lost();
    }, SILENCE);
  }

  private lost(): void {
    window.clearTimeout(this.timer);
    this.become('lost');
    this.timer = window.setTimeout(() => {
      this.connect();
    }, this.retryIn);
    this.retryIn = Math.min(LAST_RETRY, this.retryIn * 2);
  }

  private receive(data: unknown): void {
    let message: Message;
    try {
      message = JSON.parse(String(data)) as Message;
    } catch {
      return;
    }
    this.retryIn = FIRST_RETRY;
    this.become('live');
    if (message.type === 'state') {
      this.state.emit(snapshotOf(message));
    } else if (message.records.length > 0) {
      this.after = Math.max(this.after ?? 0, ...message.records.map(record => record.seq));
      this.records.emit(message.records);
    }
  }

  private become(status: FeedStatus): void {
    if (this._status !== status) {
      this._status = status;
      this.statusChanged.emit(status);
    }
  }

  private tellPace(): void {
    if (this.socket?.readyState === 1) {
      const interval = document.hidden ? HIDDEN_INTERVAL : this.interval;
      this.socket.send(JSON.stringify({ interval }));
    }
  }

  private readonly onVisibility = (): void => {
    this.tellPace();
    if (!document.hidden) {
      this.retry();
    }
  };
}

function snapshotOf(message: StateMessage): Snapshot {
  const sandboxes: Sandbox[] = [];
  const problems: string[] = message.message === null ? [] : [message.message];
  for (const supervisor of message.supervisors) {
    if (supervisor.error !== null) {
      problems.push(supervisor.error);
    }
    for (const sandbox of supervisor.sandboxes) {
      sandboxes.push({ ...sandbox, supervisor: supervisor.id, kernel: supervisor.kernel });
    }
  }
  return { now: message.now, sandboxes, problems };
}
