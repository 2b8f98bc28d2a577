// Changes only those parts of the page that differ: nothing flickers, and focus and selection are kept.

export function put(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function show(element, shown) {
  if (element.hidden === shown) element.hidden = !shown;
}

export function set(element, name, value) {
  if (value === null || value === undefined) {
    if (element.hasAttribute(name)) element.removeAttribute(name);
  } else if (element.getAttribute(name) !== String(value)) {
    element.setAttribute(name, value);
  }
}

/**
 * Brings the children of `parent` into the order of `items`, keyed: `make(item)` for a new one, `fill(element, item)` for
 * every one. What is not in `items` goes, unless `keep(element)`.
 */
export function arrange(parent, items, { key, make, fill, keep = () => false }) {
  const known = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  const wanted = new Set(items.map((item) => String(key(item))));
  for (const [name, child] of known) if (!wanted.has(name) && !keep(child)) child.remove();
  let next = parent.firstElementChild;
  for (const item of items) {
    while (next && !wanted.has(next.dataset.key)) next = next.nextElementSibling;
    const element = known.get(String(key(item))) ?? make(item);
    element.dataset.key = key(item);
    fill(element, item);
    if (element === next) next = next.nextElementSibling;
    else parent.insertBefore(element, next);
  }
}

/** Announces a message to screen readers. */
export function announce(text) {
  const region = document.getElementById("announcements");
  region.textContent = "";
  setTimeout(() => {
    region.textContent = text;
  }, 50);
}
