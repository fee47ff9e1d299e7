import { Signal } from '@lumino/signaling';

import { KernelModes } from '../src/modes';
import type { IKernel } from '../src/modes';

const TARGET = 'nls_jupyter.mode';

/** A kernel that has `%gpu`, or not. */
class FakeKernel {
  readonly id = 'kernel-1';
  readonly handleComms = true;
  readonly disposed = new Signal<this, void>(this);
  status = 'idle';
  asked = 0;
  sent: unknown[] = [];
  onMsg: (message: unknown) => void = () => undefined;

  constructor(public comms: object) {}

  hasComm(): boolean {
    return false;
  }

  requestCommInfo(): Promise<unknown> {
    this.asked += 1;
    return Promise.resolve({ content: { status: 'ok', comms: this.comms } });
  }

  createComm(): object {
    const send = (data: unknown): void => {
      this.sent.push(data);
    };
    return Object.defineProperty({ send }, 'onMsg', {
      set: (action: (message: unknown) => void) => {
        this.onMsg = action;
      }
    });
  }

  tells(auto: unknown): void {
    this.onMsg({ content: { data: { auto } } });
  }
}

async function asked(modes: KernelModes, kernel: FakeKernel): Promise<void> {
  modes.look(kernel as unknown as IKernel);
  await new Promise(resolve => setTimeout(resolve));
}

it('a kernel that has %gpu is asked once and followed', async () => {
  const [modes, kernel] = [
    new KernelModes(() => false),
    new FakeKernel({ [TARGET]: { target_name: TARGET } })
  ];
  await asked(modes, kernel);
  await asked(modes, kernel);
  expect([kernel.asked, kernel.sent]).toEqual([1, [{}]]);
  expect(modes.isAuto('kernel-1')).toBeNull();
  kernel.tells(true);
  expect(modes.isAuto('kernel-1')).toBe(true);
  kernel.tells('nonsense');
  expect(modes.isAuto('kernel-1')).toBe(true);
  kernel.tells(false);
  expect(modes.isAuto('kernel-1')).toBe(false);
});

it('a restarted kernel is asked again', async () => {
  const [modes, kernel] = [
    new KernelModes(() => false),
    new FakeKernel({ [TARGET]: { target_name: TARGET } })
  ];
  await asked(modes, kernel);
  kernel.tells(true);
  kernel.status = 'restarting';
  await asked(modes, kernel);
  expect(modes.isAuto('kernel-1')).toBeNull();
  kernel.status = 'idle';
  await asked(modes, kernel);
  expect(kernel.asked).toBe(2);
});

it('what a kernel told is forgotten with the connection by which it told it: no other one would hear more', async () => {
  const [modes, kernel] = [
    new KernelModes(() => false),
    new FakeKernel({ [TARGET]: { target_name: TARGET } })
  ];
  let changes = 0;
  modes.changed.connect(() => {
    changes += 1;
  });
  await asked(modes, kernel);
  kernel.tells(true);
  kernel.disposed.emit();
  expect([modes.isAuto('kernel-1'), changes]).toEqual([null, 2]);
});

it('a kernel that loads %gpu later is asked once more when it has a workload', async () => {
  const working = new Set<string>();
  const [modes, kernel] = [new KernelModes(id => working.has(id)), new FakeKernel({})];
  await asked(modes, kernel);
  kernel.comms = { [TARGET]: { target_name: TARGET } };
  await asked(modes, kernel);
  expect(kernel.asked).toBe(1);
  working.add('kernel-1');
  await asked(modes, kernel);
  expect([kernel.asked, kernel.sent]).toEqual([2, [{}]]);
  await asked(modes, kernel);
  expect(kernel.asked).toBe(2);
  kernel.tells(true);
  expect(modes.isAuto('kernel-1')).toBe(true);
});

it('a kernel without %gpu is left in peace', async () => {
  const [modes, kernel] = [new KernelModes(() => false), new FakeKernel({})];
  await asked(modes, kernel);
  expect(kernel.sent).toEqual([]);
  expect(modes.isAuto('kernel-1')).toBeNull();
  expect(modes.isAuto(null)).toBeNull();
});
