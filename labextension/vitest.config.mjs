import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    environment: 'jsdom',
    setupFiles: ['labextension/test/setup.ts'],
    include: ['labextension/test/**/*.spec.{ts,tsx}'],
    // These packages ship ES modules that import CSS and one another without file endings: Vite has to transform them.
    server: { deps: { inline: [/@jupyterlab\//, /@jupyter\//, /@lumino\//] } }
  }
});
