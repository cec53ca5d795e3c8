/** The panel's icon, drawn in the theme's icon colour. */
import { LabIcon } from '@jupyterlab/ui-components';

export const shieldIcon = new LabIcon({
  name: 'ipysandbox:shield',
  svgstr: `<svg xmlns="http://www.w3.org/2000/svg" width="16" viewBox="0 0 24 24">
  <path class="jp-icon3 jp-icon-selectable" fill="#616161" d="M12 2 4 5v6c0 5 3.4 9.7 8 11 4.6-1.3 8-6 8-11V5zm0 2.1 6 2.3V11c0 4-2.5 7.7-6 8.9-3.5-1.2-6-4.9-6-8.9V6.4z"/>
</svg>`
});
