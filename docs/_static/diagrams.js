// Draws the page's diagrams in the colours of the theme that is chosen, and again when another one is chosen.
const root = document.documentElement;
const diagrams = [...document.querySelectorAll('pre.mermaid')].map(element => ({
  element,
  text: element.textContent
}));

function draw() {
  const theme = root.dataset.theme === 'dark' ? 'dark' : 'neutral';
  mermaid.initialize({ startOnLoad: false, theme });
  for (const { element, text } of diagrams) {
    element.removeAttribute('data-processed');
    element.textContent = text;
  }
  mermaid.run({ nodes: diagrams.map(({ element }) => element) });
}

new MutationObserver(draw).observe(root, { attributeFilter: ['data-theme'] });
draw();
