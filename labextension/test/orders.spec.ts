import { Orders } from '../src/orders';
import { trans } from './samples';

/** What the page shows. */
const mockShown: string[] = [];
jest.mock('@jupyterlab/apputils', () => ({
  Notification: { error: (text: string) => mockShown.push(text) }
}));
jest.mock('@jupyterlab/services', () => ({}));
jest.mock('../src/dialogs', () => ({}));
jest.mock('../src/restapi', () => ({}));

const NOT_RUN = 'The kernel has not run %gpu auto on: a cell before it failed, or it has ended. Try again.';

function answers(content: object): object {
  return { done: Promise.resolve({ content }) };
}

it.each([
  ['runs it', () => answers({ status: 'ok' }), []],
  ['refuses it', () => answers({ status: 'error', evalue: 'no %gpu here' }), ['no %gpu here']],
  ['fails in a cell before', () => answers({ status: 'aborted' }), [NOT_RUN]],
  ['is restarted before', () => ({ done: Promise.reject(new Error('Canceled future')) }), [NOT_RUN]],
  [
    'is dead',
    () => {
      throw new Error('Kernel is dead');
    },
    [NOT_RUN]
  ]
])(
  'whoever turns auto mode on reads what came of it where the kernel %s',
  async (_, requestExecute, told) => {
    mockShown.length = 0;
    await new Orders({} as never, trans, () => 'binary').setAuto({ requestExecute } as never, true);
    expect(mockShown).toEqual(told);
  }
);
