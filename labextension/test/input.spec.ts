import { onMessage } from '../src/input';

type Session = Parameters<typeof onMessage>[0];
type Args = Parameters<typeof onMessage>[1];

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
  onMessage({ kernel } as unknown as Session, { msg: { header: { msg_type } }, direction } as unknown as Args);
  expect(kernel.hasPendingInput).toBe(pending);
});
