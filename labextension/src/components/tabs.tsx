/** A row of tabs, by mouse and by arrow keys. */
import * as React from 'react';

export interface TabsProps<T extends string> {
  label: string;
  tabs: readonly (readonly [T, string])[];
  current: T;
  onSelect: (tab: T) => void;
}

export function Tabs<T extends string>(props: TabsProps<T>): React.JSX.Element {
  const { label, tabs, current, onSelect } = props;
  const row = React.useRef<HTMLDivElement>(null);
  const move = (event: React.KeyboardEvent): void => {
    const at = tabs.findIndex(([tab]) => tab === current);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: tabs.length - 1 }[event.key];
    const next = to === undefined ? undefined : tabs[(to + tabs.length) % tabs.length];
    if (next) {
      event.preventDefault();
      onSelect(next[0]);
      row.current?.querySelector<HTMLElement>(`#ipysandbox-tab-${next[0]}`)?.focus();
    }
  };
  return (
    <div
      ref={row}
      className="jp-ipysandbox-tabs"
      role="tablist"
      aria-label={label}
      onKeyDown={move}
    >
      {tabs.map(([tab, text]) => (
        <button
          key={tab}
          type="button"
          role="tab"
          id={`ipysandbox-tab-${tab}`}
          aria-selected={tab === current}
          aria-controls="ipysandbox-view"
          tabIndex={tab === current ? 0 : -1}
          onClick={() => {
            onSelect(tab);
          }}
        >
          {text}
        </button>
      ))}
    </div>
  );
}
