import { NodeModel, SAMPLES_KEPT_S } from '../src/model';
import type { IChange, IEntry } from '../src/tokens';
import { copy, delta, entry, snapshot } from './samples';

const SENTENCES = { connecting: 'connecting', lost: 'lost', unreadable: 'unreadable' };

class Watched {
  clock = 1000;
  changes: IChange[] = [];
  model = new NodeModel(SENTENCES, () => this.clock);

  constructor() {
    this.model.changed.connect((_, change) => {
      this.changes.push(change);
    });
  }
}

/** Entries with these numbers, all of one time. */
function happened(first: number, last: number, at: number): IEntry[] {
  const time = new Date(at * 1000).toISOString();
  return Array.from({ length: last - first + 1 }, (_, i) => entry({ sequence: first + i, time }));
}

beforeEach(() => {
  jest.spyOn(console, 'warn').mockImplementation(() => undefined);
});

describe('the model', () => {
  it('knows nothing before the first message, and says so', () => {
    const { model } = new Watched();
    expect([model.state, model.trouble]).toEqual([null, 'connecting']);
    expect(model.permissions).toEqual({ write: false, execute: false });
  });

  it('tells what is new, but not what happened before this page', () => {
    const { model, changes } = new Watched();
    model.received(snapshot);
    model.received(delta);
    expect(changes.map(change => change.entries.length)).toEqual([0, 1]);
    expect(model.trouble).toBeNull();
  });

  it('shows nothing old as current when the connection is lost, and catches up afterwards', () => {
    const { model, changes } = new Watched();
    model.received(snapshot);
    model.lost();
    expect([model.state, model.trouble]).toEqual([null, 'lost']);
    expect(model.history).toHaveLength(3);
    const later = copy(snapshot);
    later.snapshot.history.push({ ...delta.history[0], sequence: 4 } as never);
    model.received(later);
    expect(changes[changes.length - 1]?.entries.map(entry => entry.sequence)).toEqual([4]);
  });

  it('tells all that it missed, also where more happened than the server keeps', () => {
    const { model, changes } = new Watched();
    model.received(snapshot);
    model.lost();
    const history = happened(200, 399, snapshot.time + 60);
    model.received({ ...snapshot, snapshot: { ...snapshot.snapshot, history } });
    expect(changes[changes.length - 1]?.entries).toEqual(history);
  });

  it.each([
    ['a daemon that was away when the page was opened', false],
    ['a daemon whose history has begun anew meanwhile', true]
  ])('does not tell what happened before this page when it hears it later: %s', (_, anew) => {
    const { model, changes } = new Watched();
    const known = anew ? snapshot.snapshot.history : [];
    model.received({ ...snapshot, snapshot: { ...snapshot.snapshot, history: known } });
    const [before, since] = [happened(1, 9, snapshot.time - 3600), happened(10, 12, snapshot.time + 1)];
    const history = [...before, ...since];
    model.received({ ...delta, history, history_anew: anew });
    expect(changes[1]?.entries).toEqual(since);
    expect(model.history).toEqual(history);
  });

  it('tells nothing twice where the server has started anew and has not heard of the daemon yet', () => {
    const { model, changes } = new Watched();
    const nothing = { ...snapshot, snapshot: { ...snapshot.snapshot, history: [] } };
    model.received(nothing);
    const [known, later] = [happened(1, 3, snapshot.time + 1), happened(4, 4, snapshot.time + 2)];
    model.received({ ...delta, history: known });
    model.lost();
    model.received(nothing);
    model.received({ ...delta, history: [...known, ...later] });
    expect(changes.map(change => change.entries)).toEqual([[], known, [], [], later]);
  });

  it('takes a malformed message for the end of what it knew, and recovers', () => {
    const { model } = new Watched();
    model.received(snapshot);
    expect(model.received({ ...delta, after: 99 })).toBe(false);
    model.lost();
    expect([model.state, model.trouble]).toEqual([null, 'unreadable']);
    expect(model.received(snapshot)).toBe(true);
    expect(model.trouble).toBeNull();
  });

  it("uses the server's clock, however far this machine's is off", () => {
    const watched = new Watched();
    watched.clock = 5;
    watched.model.received(snapshot);
    expect(watched.model.now()).toBe(snapshot.time);
    watched.clock += 10;
    expect(watched.model.now()).toBe(snapshot.time + 10);
  });

  it("finds a kernel's workload, and its first if there are several", () => {
    const { model } = new Watched();
    const nested = copy(snapshot) as unknown as { snapshot: { workloads: Record<string, unknown> } };
    nested.snapshot.workloads.nested = { ...snapshot.snapshot.workloads['w-alice'], id: 'nested', order: 9 };
    model.received(nested);
    expect(model.workloadOf('kernel-1')?.id).toBe('w-alice');
    expect(model.workloadOf('kernel-2')).toBeNull();
    expect(model.workloadOf(null)).toBeNull();
  });

  it('keeps the figures of the last minutes, and none that are unknown', () => {
    const { model } = new Watched();
    model.received(snapshot);
    for (let i = 1; i <= 300; i++) {
      const time = snapshot.time + i;
      model.received({
        version: i + 1,
        after: i,
        time,
        gpus: { 'GPU-aaaaaaaa': { utilisation: (i % 10) / 10 } }
      });
    }
    const { utilisation, memory } = model.samplesOf('GPU-aaaaaaaa');
    expect(utilisation.length).toBeLessThanOrEqual(SAMPLES_KEPT_S + 2);
    expect(utilisation[0]?.at).toBeLessThanOrEqual(snapshot.time + 300 - SAMPLES_KEPT_S);
    expect(memory[memory.length - 1]?.value).toBe(6 / 16);
    expect(model.samplesOf('GPU-bbbbbbbb')).toEqual({ memory: [], utilisation: [] });
  });
});
