// Renews the page: what is shown is what is. Without this script each page is whole as it was loaded.
'use strict';

const LOOK_EVERY_MS = 1500;
const main = document.querySelector('main[data-live]');
const connection = document.getElementById('connection');
const onward = document.getElementById('onward');

// A cookie that is strict comes along from a page of ours, and not from where the link was opened.
if (onward) location.replace(onward.href);

// What a person is doing is not taken away.
function isBusy() {
  const active = document.activeElement;
  const typing = active && main.contains(active) && ['INPUT', 'SELECT', 'TEXTAREA'].includes(active.tagName);
  const selected = String(document.getSelection()) !== '';
  return typing || selected;
}

async function look() {
  if (document.hidden || isBusy()) return;
  try {
    const answer = await fetch(location.href, { cache: 'no-store', redirect: 'error' });
    const page = new DOMParser().parseFromString(await answer.text(), 'text/html');
    const next = page.querySelector('main');
    connection.textContent = answer.ok ? '' : 'Trying again';
    if (!answer.ok || !next || isBusy()) return;
    const open = [...main.querySelectorAll('details[open]')].map((one) => one.id);
    const focused = document.activeElement && document.activeElement.closest('form');
    const at = focused ? [...document.forms].indexOf(focused) : -1;
    if (next.innerHTML !== main.dataset.last) {
      main.dataset.last = next.innerHTML;
      main.replaceChildren(...next.childNodes);
      open.forEach((id) => document.getElementById(id)?.setAttribute('open', ''));
      if (at >= 0) document.forms[at]?.querySelector('button')?.focus({ preventScroll: true });
      document.querySelector('header nav').replaceWith(page.querySelector('header nav'));
      document.title = page.title;
    }
  } catch {
    connection.textContent = 'The dashboard does not answer';
  }
}

if (main) {
  main.dataset.last = main.innerHTML;
  setInterval(look, LOOK_EVERY_MS);
  document.addEventListener('visibilitychange', look);
}
