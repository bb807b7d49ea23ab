// Makes and finds elements of the page.

export function part(name, text, title) {
  const element = document.createElement("span");
  element.className = name;
  element.textContent = text;
  if (title) element.title = title;
  return element;
}

export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch { // A page from a disk may not use the clipboard in this way.
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    const isDone = document.execCommand("copy");
    area.remove();
    return isDone;
  }
}
