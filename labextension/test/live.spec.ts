import { keepConnected } from '../src/live';
import { NodeModel } from '../src/model';

/** Those that have not been closed. */
const open = new Set<object>();
jest.mock('../src/restapi', () => ({
  openStream: () => {
    const socket = { close: () => open.delete(socket) };
    open.add(socket);
    return socket;
  },
  refusal: () => Promise.resolve(null)
}));

/** As much of a page as is needed. */
class Page extends EventTarget {
  constructor(public hidden: boolean) {
    super();
    Object.assign(globalThis, { document: this, window: new EventTarget() });
    const sentences = { connecting: '', lost: '', unreadable: '', absent: '', forbidden: '' };
    keepConnected(new NodeModel(sentences), {} as never, sentences);
  }

  turn(hidden: boolean): void {
    this.hidden = hidden;
    this.dispatchEvent(new Event('visibilitychange'));
  }
}

beforeEach(() => {
  jest.useFakeTimers();
  open.clear();
});

it.each([
  ['that was opened behind another', true],
  ['that was in front', false]
])('a tab %s costs the server nothing once it has been hidden for a minute', (_, hidden) => {
  const page = new Page(hidden);
  if (!hidden) {
    page.turn(true);
  }
  jest.advanceTimersByTime(30_000);
  expect(open.size).toBe(1);
  jest.advanceTimersByTime(31_000);
  expect(open.size).toBe(0);
  page.turn(false);
  expect(open.size).toBe(1);
});
