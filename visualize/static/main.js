// Where the script of all pages begins: each part starts where the page has what it is about.

import { startBundle } from "./bundle.js";
import { Palette } from "./palette.js";
import { startActions } from "./actions.js";
import { startRunPage } from "./run.js";
import { startHeadline } from "./headline.js";
import { startList } from "./lists.js";
import { startSelection } from "./selection.js";

// A run of a file of several takes the place of their list before the other parts look for it.
startBundle();
const palette = new Palette();
palette.offer();
startActions();
startRunPage(palette);
startHeadline();
startList(startSelection());
