import { popupOf } from '../src/popup';
import type { ItemWidget } from '../src/widgets';

/** Those that can be seen. */
const mockOpen = new Set<object>();
jest.mock('@jupyterlab/statusbar', () => ({
  showPopup: () => {
    const popup = {
      isDisposed: false,
      dispose: () => {
        popup.isDisposed = true;
        mockOpen.delete(popup);
      }
    };
    mockOpen.add(popup);
    return popup;
  }
}));
jest.mock('../src/widgets', () => ({ PopupWidget: jest.fn() }));

it('a second click on the item closes the popup, and no two stand on each other', () => {
  Object.assign(globalThis, { requestAnimationFrame: () => 0 });
  const click = popupOf({ following: {} as never, current: {} as never });
  const anchor = { node: { querySelector: () => null } } as unknown as ItemWidget;
  const seen = [1, 2, 3].map(() => {
    click(anchor);
    return mockOpen.size;
  });
  expect(seen).toEqual([1, 0, 1]);
  for (const popup of mockOpen) {
    (popup as { dispose: () => void }).dispose(); // a click elsewhere
  }
  click(anchor);
  expect(mockOpen.size).toBe(1);
});
