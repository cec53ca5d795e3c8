/** In the status bar: how many sandboxes run, and the meter that is nearest to its limit. */
import { ReactWidget, UseSignal } from '@jupyterlab/apputils';
import { TextItem } from '@jupyterlab/statusbar';
import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { shieldIcon } from './icon';
import type { Sandbox, SandboxesModel } from './tokens';

/** From here on the status bar warns. */
const NEAR = 0.8;

/** The meter that is nearest to its limit, and how near: 0 to 1. */
export function worst(
  sandboxes: readonly Sandbox[],
  trans: TranslationBundle
): { label: string; share: number } | null {
  let found: { label: string; share: number } | null = null;
  for (const { usage, limits, cell } of sandboxes) {
    const meters: [string, number | undefined, number | undefined][] = [
      [trans.__('memory'), usage.memory, limits.memory],
      [trans.__('disk'), usage.disk, limits.disk],
      [trans.__('processes'), usage.processes, limits.processes],
      [trans.__('output'), usage.output, limits.output],
      [trans.__('CPU time'), cell === null ? undefined : usage.cpu, limits.cpu],
      [trans.__('time'), cell?.elapsed, limits.wall]
    ];
    for (const [label, value, limit] of meters) {
      const share = value !== undefined && limit !== undefined && limit > 0 ? value / limit : 0;
      if (found === null || share > found.share) {
        found = { label, share };
      }
    }
  }
  return found;
}

export class StatusItem extends ReactWidget {
  constructor(
    private readonly model: SandboxesModel,
    private readonly trans: TranslationBundle,
    private readonly onClick: () => void
  ) {
    super();
    this.addClass('jp-ipysandbox-StatusItem');
  }

  protected override render(): React.JSX.Element {
    return <UseSignal signal={this.model.changed}>{() => this.item()}</UseSignal>;
  }

  private item(): React.JSX.Element | null {
    const { model, trans } = this;
    const running = model.sandboxes.filter(sandbox => sandbox.state !== 'dead');
    if (running.length === 0) {
      return null;
    }
    const near = worst(running, trans);
    const text =
      trans._n('%1 sandbox', '%1 sandboxes', running.length) +
      (near === null ? '' : ` · ${near.label} ${Math.round(near.share * 100)} %`);
    return (
      <button
        type="button"
        data-near={near !== null && near.share >= NEAR}
        title={trans.__('Sandboxes, and the meter nearest to its limit. Click for the panel.')}
        onClick={this.onClick}
      >
        <shieldIcon.react tag="span" width="14px" height="14px" />
        <TextItem source={text} />
      </button>
    );
  }
}
