import js from '@eslint/js';
import tseslint from 'typescript-eslint';

export default tseslint.config(
  { ignores: ['lib/', 'node_modules/', 'jest.config.js', 'style/index.js'] },
  js.configs.recommended,
  ...tseslint.configs.strictTypeChecked,
  {
    languageOptions: {
      parserOptions: { project: ['tsconfig.test.json'], tsconfigRootDir: import.meta.dirname }
    },
    rules: {
      // JupyterLab names its interfaces so.
      '@typescript-eslint/naming-convention': [
        'error',
        { selector: 'interface', format: ['PascalCase'], custom: { regex: '^I[A-Z]', match: true } }
      ],
      // Numbers in sentences are meant.
      '@typescript-eslint/restrict-template-expressions': ['error', { allowNumber: true }],
      // Lumino's signals are given a method and its object, apart from each other.
      '@typescript-eslint/unbound-method': 'off',
      eqeqeq: 'error',
      'max-lines': ['error', 400]
    }
  },
  { files: ['*.mjs'], extends: [tseslint.configs.disableTypeChecked] }
);
