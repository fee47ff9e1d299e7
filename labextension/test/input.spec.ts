import { onMessage } from '../src/input';

type Session = Parameters<typeof onMessage>[0];
type Args = Parameters<typeof onMessage>[1];
type Notebook = Parameters<typeof onMessage>[2];

/** As much of a widget as is needed. */
class FakeWidget {
  isDisposed = false;

  constructor(
    private readonly _class: string,
    private readonly _children: FakeWidget[] = []
  ) {}

  children(): Iterable<FakeWidget> {
    return this._children;
  }

  hasClass(name: string): boolean {
    return name === this._class;
  }

  dispose(): void {
    this.isDisposed = true;
  }
}

it.each([
  ['execute_reply', 'recv', false],
  ['status', 'recv', true],
  ['execute_reply', 'send', true]
])('after %s (%s) a cell that asked still asks: %s', (msg_type, direction, pending) => {
  const kernel = {
    hasPendingInput: true,
    removeInputGuard: () => {
      kernel.hasPendingInput = false;
    }
  };
  const [box, output] = [new FakeWidget('jp-OutputArea-stdin-item'), new FakeWidget('jp-OutputArea-child')];
  const notebook = new FakeWidget('jp-Notebook', [new FakeWidget('jp-OutputArea', [output, box])]);
  const message = { msg: { header: { msg_type } }, direction } as unknown as Args;
  onMessage({ kernel } as unknown as Session, message, notebook as unknown as Notebook);
  expect([kernel.hasPendingInput, box.isDisposed, output.isDisposed]).toEqual([pending, !pending, false]);
});
