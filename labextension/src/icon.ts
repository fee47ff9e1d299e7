/** A chip with its pins. */

import { LabIcon } from '@jupyterlab/ui-components';

// One filled shape: JupyterLab's themes colour what has a `fill`, and selected rows what is `jp-icon-selectable`.
const SVG = `<svg xmlns="http://www.w3.org/2000/svg" width="16" viewBox="0 0 24 24">
  <path class="jp-icon3 jp-icon-selectable" fill="#616161" fill-rule="evenodd"
    d="M8 1h2v3h4V1h2v3h2a2 2 0 0 1 2 2v2h3v2h-3v4h3v2h-3v2a2 2 0 0 1-2 2h-2v3h-2v-3h-4v3H8v-3H6a2 2 0 0 1-2-2v-2H1v-2h3v-4H1V8h3V6a2 2 0 0 1 2-2h2zM6 6v12h12V6zM9 9h6v6H9z"/>
</svg>`;

export const gpuIcon = new LabIcon({ name: 'nls-jupyter:gpu', svgstr: SVG });
