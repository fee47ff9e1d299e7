import { NodeModel } from '../src/model';
import { Notifier } from '../src/notifications';
import { copy, snapshot, trans } from './samples';

/** What the page shows; no text comes twice. */
const mockShown = new Set<string>();
jest.mock('@jupyterlab/apputils', () => ({
  Notification: {
    emit: (text: string, _: string, options: { actions: { label: string }[] }) => {
      mockShown.add(text);
      mockLabels = options.actions.map(action => action.label);
      return text;
    },
    dismiss: (text: string) => mockShown.delete(text)
  }
}));

/** Of the notification that was shown last. */
let mockLabels: string[] = [];
const away = copy(snapshot);
Object.assign(away.snapshot, { gpus: {}, workloads: {} });
Object.assign(away.snapshot.daemon, { reachable: false, message: 'No daemon answers.' });

/** Who is told of all, and what the daemon says while bob.ipynb waits. */
const notified = (hasPanel: boolean) => {
  const model = new NodeModel({ connecting: '', lost: '', unreadable: '' }, () => snapshot.time);
  const notifier = new Notifier(model, {
    wanted: () => 'all',
    units: () => 'binary',
    trans,
    act: () => {},
    hasPanel: () => hasPanel
  });
  const waiting = copy(snapshot) as unknown as { snapshot: { workloads: Record<string, object> } };
  Object.assign(waiting.snapshot.workloads['w-bob'] ?? {}, { kernel_id: 'kernel-2' });
  return { model, notifier, waiting };
};

it.each([
  [
    'the page is connected',
    (model: NodeModel) => {
      model.lost();
    }
  ],
  [
    'the daemon answers',
    (model: NodeModel) => {
      model.received(away);
    }
  ]
])('a wait that was told is not told again when %s again, and is over when it is', (_, goesAway) => {
  mockShown.clear();
  const { model, notifier, waiting } = notified(true);
  const told = 'bob.ipynb: waiting for a GPU, 2nd in queue, GPU 0 is held by training';
  model.received(waiting);
  expect([...mockShown]).toEqual([told]);
  mockShown.clear(); // its user closes it
  goesAway(model);
  model.received(waiting);
  expect([...mockShown]).toEqual([]);
  mockShown.add(told);
  goesAway(model);
  expect([...mockShown]).toEqual([told]);
  model.received(snapshot);
  expect([...mockShown]).toEqual([]);
  notifier.dispose();
});

it.each([true, false])('a notification leads to the panel where there is one: %s', there => {
  const { model, notifier, waiting } = notified(there);
  model.received(waiting);
  expect(mockLabels.includes('GPUs')).toBe(there);
  expect(mockLabels).not.toEqual([]);
  notifier.dispose();
});
