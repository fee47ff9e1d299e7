import React from 'react';
import { renderToStaticMarkup } from 'react-dom/server';

import { NodeModel } from '../src/model';
import type { ITranslate } from '../src/statusText';
import type { IViewContext } from '../src/views/context';
import { ItemView, MarkerView, PopupView } from '../src/views/item';
import { PanelView } from '../src/views/panel';
import { snapshot, trans, workload } from './samples';

/** Everything that was translated, and what was filled into it, is one sign. */
const swallowing: ITranslate = { __: () => '§' };

function context(translate: ITranslate): IViewContext {
  const model = new NodeModel({ connecting: '§', lost: '§', unreadable: '§' });
  model.received(snapshot);
  const nothing = (): undefined => undefined;
  return {
    model,
    units: 'binary',
    trans: translate,
    act: nothing,
    goTo: nothing,
    openPanel: nothing
  };
}

/** What people read or hear of some views: texts, titles and labels. */
function words(translate: ITranslate): string[] {
  const view = context(translate);
  const one = workload('w-alice');
  const open = (): undefined => undefined;
  const markup = [
    <PanelView context={view} />,
    <PopupView context={view} workload={one} />,
    <PopupView context={view} workload={null} />,
    <ItemView context={view} workload={one} open={open} />,
    <MarkerView context={view} workload={one} auto={true} open={open} />
  ]
    .map(element => renderToStaticMarkup(element))
    .join(' ');
  const said = [...markup.matchAll(/(?:title|aria-label)="([^"]*)"/g)].map(found => found[1] ?? '');
  return [markup.replace(/<[^>]*>/g, ' '), ...said].join(' ').match(/[A-Za-z][\w'’-]+/g) ?? [];
}

it('nothing is said that a translator does not get', () => {
  // Names and reasons are the daemon's words, GPU, MiB and GiB the same everywhere, and times are in the locale's form.
  const given = new Set(JSON.stringify(snapshot).match(/[A-Za-z][\w'’-]+/g));
  const left = words(swallowing).filter(
    word => !given.has(word) && !['GPU', 'MiB', 'GiB', 'AM', 'PM'].includes(word)
  );
  expect(left).toEqual([]);
  expect(words(trans)).toContain('guaranteed');
});
