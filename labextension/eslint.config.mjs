import eslint from '@eslint/js';
import hooks from 'eslint-plugin-react-hooks';
import tseslint from 'typescript-eslint';

export default tseslint.config(
  { ignores: ['labextension/lib/**'] },
  eslint.configs.recommended,
  {
    files: ['labextension/**/*.{ts,tsx}'],
    extends: [tseslint.configs.strictTypeChecked, tseslint.configs.stylisticTypeChecked],
    plugins: { 'react-hooks': hooks },
    languageOptions: {
      parserOptions: { project: 'tsconfig.test.json', tsconfigRootDir: import.meta.dirname }
    },
    rules: {
      ...hooks.configs.recommended.rules,
      // Numbers in a template are what a meter's text is made of.
      '@typescript-eslint/restrict-template-expressions': ['error', { allowNumber: true }]
    }
  },
  {
    // Vite's own configuration and the style entry run in other environments than the extension.
    files: ['labextension/style/*.js', 'labextension/*.mjs'],
    languageOptions: { sourceType: 'module' }
  }
);
