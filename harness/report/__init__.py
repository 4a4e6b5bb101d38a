"""Reports made of stored results only: terminal, HTML, JUnit, Markdown."""
