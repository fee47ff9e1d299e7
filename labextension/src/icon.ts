/** A chip with its pins. */

import { LabIcon } from '@jupyterlab/ui-components';

const SVG = `<svg xmlns="http://www.w3.org/2000/svg" width="16" viewBox="0 0 24 24">
  <g class="jp-icon3" fill="none" stroke="#616161" stroke-width="2">
    <rect x="5" y="5" width="14" height="14" rx="2"/>
    <rect x="9.5" y="9.5" width="5" height="5"/>
    <path d="M9 1v4M15 1v4M9 19v4M15 19v4M1 9h4M1 15h4M19 9h4M19 15h4"/>
  </g>
</svg>`;

export const gpuIcon = new LabIcon({ name: 'nls-jupyter:gpu', svgstr: SVG });
