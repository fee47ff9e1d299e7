/** JupyterLab's way in. */

import { plugins } from './plugins';

export * from './tokens';
export default plugins;
