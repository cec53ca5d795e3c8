/** What a sandbox may do, with where each setting comes from, and what a project asks for beyond it. */
import type { TranslationBundle } from '@jupyterlab/translation';
import type { ISignal } from '@lumino/signaling';
import * as React from 'react';

import { baseName } from '../format';
import { belongs, keyOf } from '../tokens';
import type {
  Front,
  Place,
  PolicySubject,
  PolicyView,
  Problem,
  SandboxesModel,
  Setting,
  Wish
} from '../tokens';
import { settingText, sourceText, valueText } from '../words';
import { useLoaded } from './loaded';

export interface PolicyProps {
  model: SandboxesModel;
  trans: TranslationBundle;
  /** The notebook in front, where there is one. */
  notebook: Front | null;
  /** Something was saved: a policy file, maybe. */
  saved: ISignal<unknown, unknown>;
  load: (subject: PolicySubject) => Promise<PolicyView>;
  approve: (subject: PolicySubject, view: PolicyView) => Promise<boolean>;
  onOpen: (path: string, line: number | null) => void;
}

interface Choice {
  key: string;
  /** It is the notebook's in front. */
  own: boolean;
  label: string;
  subject: PolicySubject;
}

export function Policy(props: PolicyProps): React.JSX.Element {
  const { model, trans, notebook, load, saved } = props;
  const choices: Choice[] = model.sandboxes
    .filter(sandbox => sandbox.state !== 'dead')
    .map(sandbox => ({
      key: keyOf(sandbox),
      own: belongs(sandbox, notebook),
      label:
        sandbox.notebook === null
          ? sandbox.name
          : `${sandbox.name} – ${baseName(sandbox.notebook)}`,
      subject: { supervisor: sandbox.supervisor, sandbox: sandbox.name }
    }));
  const path = notebook?.path ?? null;
  const folder = path?.slice(0, Math.max(0, path.lastIndexOf('/'))) ?? '';
  choices.push({
    key: 'here',
    own: true,
    label:
      folder === ''
        ? trans.__('A new sandbox in the main folder')
        : trans.__('A new sandbox in %1', baseName(folder)),
    subject: { path: path ?? '/' }
  });
  // What was chosen by hand holds until another notebook is in front.
  const [wanted, setWanted] = React.useState<{ key: string; path: string | null } | null>(null);
  const its = choices.filter(one => notebook === null || one.own);
  const choice =
    choices.find(one => wanted?.path === path && one.key === wanted.key) ??
    its.find(one => one.key === model.chosen) ??
    its[0];
  const asked = JSON.stringify(choice?.subject);
  const ask = React.useCallback(() => load(JSON.parse(asked) as PolicySubject), [asked, load]);
  const { value, error, loading, again } = useLoaded(ask);
  React.useEffect(() => {
    saved.connect(again);
    return () => {
      saved.disconnect(again);
    };
  }, [saved, again]);
  return (
    <>
      <div className="jp-ipysandbox-choice">
        <select
          aria-label={trans.__('Whose policy')}
          value={choice?.key}
          onChange={event => {
            setWanted({ key: event.target.value, path });
          }}
        >
          {choices.map(one => (
            <option key={one.key} value={one.key}>
              {one.label}
            </option>
          ))}
        </select>
        <button
          type="button"
          className="jp-mod-styled"
          disabled={loading}
          aria-label={trans.__('Read the policy again')}
          title={trans.__('Read the policy again')}
          onClick={again}
        >
          ↻
        </button>
      </div>
      {error !== null && (
        <div className="jp-ipysandbox-error" role="alert">
          {error}
        </div>
      )}
      {value === null && error === null && (
        <p className="jp-ipysandbox-message" role="status">
          {trans.__('Reading the policy…')}
        </p>
      )}
      {value !== null && choice !== undefined && (
        <View {...props} view={value} subject={choice.subject} again={again} />
      )}
    </>
  );
}

type ViewProps = PolicyProps & { view: PolicyView; subject: PolicySubject; again: () => void };

function View(props: ViewProps): React.JSX.Element {
  const { view, subject, trans, onOpen } = props;
  const at = new Map(view.settings.map(setting => [setting.key, setting]));
  const rows = (prefix: string, skip: string[] = []): Setting[] =>
    view.settings.filter(({ key, value }) => {
      const empty = Array.isArray(value) && value.length === 0 && key.includes('gpu');
      return key.startsWith(prefix) && !skip.includes(key) && !empty;
    });
  const section = (title: string, children: React.ReactNode): React.JSX.Element => (
    <section>
      <h3>{title}</h3>
      {children}
    </section>
  );
  const table = (settings: Setting[]): React.JSX.Element => (
    <Settings settings={settings} trans={trans} onOpen={onOpen} />
  );
  const hosts = at.get('network.allow')?.value;
  return (
    <div className="jp-ipysandbox-policy">
      {view.problem !== null && (
        <ProblemBox
          title={
            'path' in subject
              ? trans.__('This policy can’t be used; no sandbox starts and no cell runs with it.')
              : trans.__(
                  'The policy can’t be used as it is now: no cell runs before that is put right. The sandbox still has the earlier policy, below.'
                )
          }
          problems={[view.problem, ...view.problem.others]}
          trans={trans}
          onOpen={onOpen}
        />
      )}
      <Wishes {...props} />
      {view.notices
        .filter(notice => view.file === null || !notice.includes('not granted'))
        .map((notice, index) => (
          <p key={index} className="jp-ipysandbox-note">
            {notice}
          </p>
        ))}
      {view.settings.length > 0 && (
        <>
          {section(
            trans.__('Files'),
            <>
              <Paths
                label={trans.__('Reads')}
                none={trans.__('nothing of yours')}
                paths={view.read}
                total={view.totals.read}
                setting={at.get('files.read')}
                {...props}
              />
              <Paths
                label={trans.__('Writes')}
                none={trans.__('nothing that stays')}
                paths={view.write}
                total={view.totals.write}
                setting={at.get('files.write')}
                {...props}
              />
              <Names
                label={trans.__('Hidden, wherever they lie')}
                names={view.hidden}
                total={view.totals.hidden}
                source={at.get('files.hide')}
                {...props}
              />
              <Names
                label={trans.__('Never written, since programs act on them')}
                names={view.protected}
                total={view.totals.protected}
                {...props}
              />
              {table(rows('files.', ['files.read', 'files.write', 'files.hide']))}
            </>
          )}
          {section(
            trans.__('Network'),
            <p>
              {Array.isArray(hosts) && hosts.length > 0
                ? hosts.join(', ')
                : trans.__('No host can be reached.')}
            </p>
          )}
          {section(trans.__('Credentials and variables'), <Variables {...props} />)}
          {section(trans.__('Limits'), table(rows('limits.')))}
          {section(trans.__('Check of the code, before it runs'), table(rows('code.')))}
          {section(trans.__('Output'), table(rows('output.')))}
          {section(
            trans.__('Other'),
            table(
              view.settings.filter(
                ({ key }) => !/^(files|network|limits|code|output|credentials)\./.test(key)
              )
            )
          )}
        </>
      )}
    </div>
  );
}

/** A project's wishes beyond what its user allows: shown as a difference before they are approved. */
function Wishes(props: ViewProps): React.JSX.Element | null {
  const { view, subject, trans, approve, onOpen, again } = props;
  const [error, setError] = React.useState<string | null>(null);
  const { file } = view;
  if (file === null || file.trusted || file.wishes.length === 0) {
    return null;
  }
  const agree = async (): Promise<void> => {
    try {
      if (await approve(subject, view)) {
        setError(null);
        again();
      }
    } catch (reason) {
      setError(reason instanceof Error ? reason.message : String(reason));
      again();
    }
  };
  return (
    <div className="jp-ipysandbox-wishes" role="region" aria-label={trans.__('Not approved')}>
      <p>
        {trans.__('This project’s policy asks for more than you allow. It does not count yet:')}
      </p>
      <WishList wishes={file.wishes} trans={trans} />
      {error !== null && (
        <p className="jp-ipysandbox-error" role="alert">
          {error}
        </p>
      )}
      {file.refused !== null && (
        <ProblemBox
          title={trans.__('It can’t be approved as it is:')}
          problems={[file.refused]}
          trans={trans}
          onOpen={onOpen}
        />
      )}
      <div className="jp-ipysandbox-buttons">
        <PlaceButton place={file.place} trans={trans} onOpen={onOpen} />
        <button
          type="button"
          className="jp-mod-styled"
          disabled={file.refused !== null}
          onClick={() => void agree()}
        >
          {trans.__('Approve…')}
        </button>
      </div>
    </div>
  );
}

/** Everything that is asked for, entry by entry: long lists scroll, and nothing of them is left out unsaid. */
export function WishList(props: { wishes: Wish[]; trans: TranslationBundle }): React.JSX.Element {
  const { wishes, trans } = props;
  return (
    <div
      className="jp-ipysandbox-wishlist"
      role="group"
      tabIndex={0}
      aria-label={trans.__('What is asked for')}
    >
      <ul>
        {wishes.map(({ key, entries, total }) => {
          const { label } = settingText(key, trans);
          const left = total - entries.length;
          return (
            <li key={key}>
              <span title={key}>{total > 1 ? trans.__('%1 (%2)', label, total) : label}</span>{' '}
              {entries.map((entry, index) => (
                <code key={index}>{valueText(key, entry, trans)}</code>
              ))}
              {left > 0 && <b>{trans.__('and %1 more, not shown here', left)}</b>}
            </li>
          );
        })}
      </ul>
    </div>
  );
}

function ProblemBox(props: {
  title: string;
  problems: Problem[];
  trans: TranslationBundle;
  onOpen: PolicyProps['onOpen'];
}): React.JSX.Element {
  const { title, problems, trans, onOpen } = props;
  return (
    <div className="jp-ipysandbox-error" role="alert">
      <p>{title}</p>
      {problems.map((problem, index) => (
        <React.Fragment key={index}>
          <pre>{problem.message}</pre>
          {problem.hint !== null && <p>{problem.hint}</p>}
          {problem.place !== null && (
            <PlaceButton place={problem.place} trans={trans} onOpen={onOpen} />
          )}
        </React.Fragment>
      ))}
    </div>
  );
}

function Settings(props: {
  settings: Setting[];
  trans: TranslationBundle;
  onOpen: PolicyProps['onOpen'];
}): React.JSX.Element {
  const { settings, trans, onOpen } = props;
  return (
    <dl className="jp-ipysandbox-settings">
      {settings.map(setting => {
        const { label, hint } = settingText(setting.key, trans);
        const text = valueText(setting.key, setting.value, trans);
        return (
          <div key={setting.key}>
            <dt title={`${hint}${hint === '' ? '' : ' '}(${setting.key})`}>{label}</dt>
            <dd>
              <span>{text === '' ? trans.__('none') : text}</span>
              <Source setting={setting} trans={trans} onOpen={onOpen} />
            </dd>
          </div>
        );
      })}
    </dl>
  );
}

function Source(props: {
  setting: Setting | undefined;
  trans: TranslationBundle;
  onOpen: PolicyProps['onOpen'];
}): React.JSX.Element | null {
  const { setting, trans, onOpen } = props;
  if (setting === undefined) {
    return null;
  }
  const { kind, label, place } = setting.source;
  const line = place?.line ? `:${place.line}` : '';
  const text = `${sourceText(kind, trans)}${line}`;
  return place?.opens ? (
    <button
      type="button"
      className="jp-ipysandbox-source jp-ipysandbox-link"
      data-kind={kind}
      title={trans.__('Open %1', `${place.file}${line}`)}
      onClick={() => {
        onOpen(place.opens ?? '', place.line);
      }}
    >
      {text}
    </button>
  ) : (
    <span
      className="jp-ipysandbox-source"
      data-kind={kind}
      title={place === null ? label : `${place.file}${line}`}
    >
      {text}
    </span>
  );
}

/** Opens a file at its line; where the page can't, its name is there to read and copy. */
function PlaceButton(props: {
  place: Place;
  trans: TranslationBundle;
  onOpen: PolicyProps['onOpen'];
}): React.JSX.Element {
  const { place, trans, onOpen } = props;
  const { file, line, opens } = place;
  const text = line === null ? file : `${file}:${line}`;
  return opens === null ? (
    <code>{text}</code>
  ) : (
    <button
      type="button"
      className="jp-mod-styled"
      title={text}
      onClick={() => {
        onOpen(opens, line);
      }}
    >
      {trans.__('Open %1', `${baseName(file)}${line === null ? '' : `:${line}`}`)}
    </button>
  );
}

function Paths(
  props: ViewProps & {
    label: string;
    none: string;
    paths: string[];
    total: number;
    setting: Setting | undefined;
  }
): React.JSX.Element {
  const { label, none, paths, total, setting, trans, onOpen } = props;
  return (
    <div className="jp-ipysandbox-paths">
      <b>{label}</b>
      <Source setting={setting} trans={trans} onOpen={onOpen} />
      <ul>
        {paths.map(path => (
          <li key={path}>{path}</li>
        ))}
        {paths.length === 0 && <li>{none}</li>}
        {total > paths.length && <li>{moreText(total - paths.length, trans)}</li>}
      </ul>
    </div>
  );
}

function Names(
  props: ViewProps & {
    label: string;
    names: string[];
    total: number;
    source?: Setting | undefined;
  }
): React.JSX.Element {
  const { label, names, total, source, trans, onOpen } = props;
  return (
    <details className="jp-ipysandbox-names">
      <summary>
        {label} ({total}) <Source setting={source} trans={trans} onOpen={onOpen} />
      </summary>
      <p>{names.join('  ')}</p>
      {total > names.length && <p>{moreText(total - names.length, trans)}</p>}
    </details>
  );
}

const moreText = (count: number, trans: TranslationBundle): string =>
  trans.__('… and %1 more, which “%2” lists', count, '%sandbox policy');

function Variables(props: ViewProps): React.JSX.Element {
  const { view, trans } = props;
  const { passed, withheld, not_passed: dropped, unset } = view.variables;
  const { totals } = view;
  return (
    <>
      <div className="jp-ipysandbox-paths">
        <b title={trans.__('Their names or values look like secrets. No sandbox ever gets them.')}>
          {trans.__('Withheld, maybe secret (%1)', totals.withheld)}
        </b>
        <p className="jp-ipysandbox-list">{withheld.join('  ') || trans.__('none')}</p>
      </div>
      <div className="jp-ipysandbox-paths">
        <b title={trans.__('The sandbox sees these with their values.')}>
          {trans.__('Passed (%1)', totals.passed)}
        </b>
        <p className="jp-ipysandbox-list">{passed.join('  ') || trans.__('none')}</p>
      </div>
      <Names label={trans.__('Not passed')} names={dropped} total={totals.not_passed} {...props} />
      {unset.length > 0 && (
        <Names label={trans.__('Not set')} names={unset} total={totals.unset} {...props} />
      )}
      <p className="jp-ipysandbox-note">
        {trans.__('Only names are shown here; values never leave the notebook’s kernel.')}
      </p>
    </>
  );
}
