import tseslint from 'typescript-eslint'

export default tseslint.config(
  { ignores: ['dist', 'node_modules', 'coverage'] },
  ...tseslint.configs.strictTypeChecked,
  {
    languageOptions: {
      parserOptions: {
        projectService: { allowDefaultProject: ['eslint.config.js', 'scripts/*.mjs'] },
        tsconfigRootDir: import.meta.dirname,
      },
    },
    rules: {
      '@typescript-eslint/restrict-template-expressions': ['error', { allowNumber: true, allowBoolean: true }],
      '@typescript-eslint/no-confusing-void-expression': ['error', { ignoreArrowShorthand: true }],
      // Attributes such as onClick may be asynchronous: their failures are shown by the component.
      '@typescript-eslint/no-misused-promises': ['error', { checksVoidReturn: { attributes: false } }],
      // Data of users is rendered as text, never as HTML.
      'no-restricted-properties': [
        'error',
        ...['innerHTML', 'outerHTML', 'insertAdjacentHTML', 'write'].map((property) => ({
          property,
          message: 'User data is rendered as text.',
        })),
      ],
      'no-restricted-syntax': [
        'error',
        { selector: "JSXAttribute[name.name='dangerouslySetInnerHTML']", message: 'User data is rendered as text.' },
      ],
      eqeqeq: 'error',
      'no-eval': 'error',
      'no-console': 'error',
    },
  },
  { files: ['**/*.js', 'scripts/*.mjs'], ...tseslint.configs.disableTypeChecked },
  // Tests write to streams, not to documents.
  { files: ['e2e/*.ts'], rules: { 'no-restricted-properties': 'off' } },
  { files: ['scripts/*.mjs'], rules: { 'no-console': 'off' } },
)
