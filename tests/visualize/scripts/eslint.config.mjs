// Lints the pages' script and its tests. It is run from the root, with the packages that `.ci/run` installs.

import { createRequire } from "node:module";

const require = createRequire(`${process.env.FLOWENGINE_TEST_NODE}/package.json`);
const js = require("@eslint/js");
const globals = require("globals");

const browser = { ...globals.browser, ...globals.es2024 };

export default [
  { files: ["visualize/static/**/*.js"], languageOptions: { ecmaVersion: 2024, sourceType: "module", globals: browser } },
  { files: ["tests/visualize/scripts/**/*.mjs"], languageOptions: { ecmaVersion: 2024, sourceType: "module", globals: globals.node } },
  js.configs.recommended,
  {
    rules: {
      "array-callback-return": "error",
      curly: ["error", "multi-line"],
      "default-case-last": "error",
      eqeqeq: "error",
      "no-constructor-return": "error",
      "no-eval": "error",
      "no-implicit-coercion": "error",
      "no-implied-eval": "error",
      "no-new-func": "error",
      "no-promise-executor-return": "error",
      "no-self-compare": "error",
      "no-shadow-restricted-names": "error",
      "no-template-curly-in-string": "error",
      "no-unused-vars": ["error", { argsIgnorePattern: "^_", caughtErrors: "all" }],
      "no-use-before-define": ["error", { functions: false, classes: false, variables: false }],
      "no-useless-assignment": "error",
      "no-var": "error",
      "object-shorthand": "error",
      "prefer-const": "error",
      "prefer-template": "error",
    },
  },
  {
    files: ["visualize/static/**/*.js"],
    rules: {
      // A name that says what happened to a thing does not say what it is.
      "id-denylist": ["error", "found", "given", "said", "told", "asked", "known", "made", "kept", "taken"],
      // The modules are joined into one text without a parser (`visualize/viewer/scripts.py`).
      "no-restricted-syntax": [
        "error",
        { selector: "ExportDefaultDeclaration, ExportAllDeclaration, ExportNamedDeclaration[declaration=null]", message: "Export a declaration where it stands." },
        { selector: "ImportDefaultSpecifier, ImportNamespaceSpecifier, ImportExpression", message: "Import names." },
        { selector: "TemplateElement[value.raw=/\\n/]", message: "A line of a text may look like a comment or an import." },
        { selector: "MemberExpression[property.name=/^(innerHTML|outerHTML|insertAdjacentHTML)$/][object.name!=/^(template|fresh)$/]", message: "Build elements." },
      ],
    },
  },
];
