import React from 'react';
import { renderToStaticMarkup } from 'react-dom/server';

import { NodeModel } from '../src/model';
import type { ITranslate } from '../src/statusText';
import type { IViewContext } from '../src/views/context';
import { ItemView, MarkerView, PopupView } from '../src/views/item';
import { PanelView } from '../src/views/panel';
import { partsText, unhealthyText, whyText } from '../src/statusText';
import { translation } from '../src/translation';
import { known, snapshot, trans, workload } from './samples';

import reasons from '../samples/reasons.json';

/** Everything that was translated, and what was filled into it, is one sign. */
const swallowing: ITranslate = { __: () => '§', _n: () => '§' };

function context(translate: ITranslate): IViewContext {
  const model = new NodeModel({ connecting: '§', lost: '§', unreadable: '§' });
  model.received(snapshot);
  const nothing = (): undefined => undefined;
  return {
    model,
    units: 'binary',
    trans: translate,
    isOrdered: () => false,
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
    <PopupView context={view} workload={one} auto={null} />,
    <PopupView context={view} workload={null} auto={null} />,
    <ItemView context={view} workload={one} open={open} />,
    <MarkerView context={view} workload={one} auto={true} open={open} />
  ]
    .map(element => renderToStaticMarkup(element))
    .join(' ');
  const said = [...markup.matchAll(/(?:title|aria-label)="([^"]*)"/g)].map(found => found[1] ?? '');
  return [markup.replace(/<[^>]*>/g, ' '), ...said].join(' ').match(/[A-Za-z][\w'’-]+/g) ?? [];
}

it('nothing is said that a translator does not get', () => {
  jest.useFakeTimers({ now: 1000 * snapshot.time });
  // Names and reasons are the daemon's words, GPU, MiB and GiB the same everywhere, and times are in the locale's form.
  const given = new Set(JSON.stringify(snapshot).match(/[A-Za-z][\w'’-]+/g));
  const left = words(swallowing).filter(
    word => !given.has(word) && !['GPU', 'MiB', 'GiB', 'AM', 'PM'].includes(word)
  );
  expect(left).toEqual([]);
  expect(words(trans)).toContain('guaranteed');
});

it.each(reasons.map(({ sentence, parts }) => [sentence, parts] as const))('%s', (sentence, parts) => {
  expect(partsText(parts, '', trans)).toBe(sentence);
  expect(partsText(parts, '', swallowing)).toBe('§');
});

it('a reason is translated from the inside out', () => {
  const german: Record<string, string> = { '%1 is held by %2': '%2 hat %1', '%1 and %2': '%1 und %2' };
  const translate: ITranslate = {
    ...trans,
    __: (text, ...values) => trans.__(german[text] ?? text, ...values)
  };
  const who = { template: '%1 and %2', arguments: ['alice', 'bob'] };
  const parts = { template: '%1 is held by %2', arguments: ['GPU 0', who] };
  expect(partsText(parts, 'English', translate)).toBe('alice und bob hat GPU 0');
});

it('what an older daemon says is shown as it is', () => {
  const old = workload('w-bob', { reason_parts: null });
  expect(whyText(old, swallowing)).toBe('GPU 0 is held by training');
});

it('why a GPU is out of service is translated, too', () => {
  const gpu = known().state.gpus.get('GPU-bbbbbbbb');
  expect(gpu).toBeDefined();
  expect(gpu && unhealthyText(gpu, swallowing)).toBe('§');
});

it.each(['100%% of it', '%1', '%% %', '50%', '%% '])('a name is shown as it is: %j', name => {
  const inner = { template: 'held by %1', arguments: [name] };
  const told = partsText({ template: '%1 waits, %2', arguments: [name, inner] }, '', translation(null));
  expect(told).toBe(`${name} waits, held by ${name}`);
});
