const typescript = ['ts-jest', { tsconfig: 'tsconfig.test.json' }];

module.exports = {
  testEnvironment: 'node',
  roots: ['<rootDir>/test'],
  // JupyterLab's own translator, the part of its package that needs no page.
  moduleNameMapper: { '^@jupyterlab/translation$': '@jupyterlab/translation/lib/base' },
  transform: { '^.+\\.tsx?$': typescript, '@jupyterlab/translation/lib/.+\\.js$': typescript },
  transformIgnorePatterns: ['/node_modules/(?!@jupyterlab/translation/)']
};
