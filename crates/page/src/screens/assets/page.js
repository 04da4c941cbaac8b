// What the page does with a script: it shows changes as they happen, and times in the zone of the reader. Everything else works without it.
'use strict';

const live = document.getElementById('live');
const connection = document.getElementById('connection');
// The clock of this machine can differ from that of the server.
const skew = Date.now() - Date.parse(document.body.dataset.now);

// After an action, the browser has the address of the action: reading it shows nothing, and a reload would do the action again.
const { address } = document.body.dataset;
if (address && new URL(address, location.href).pathname !== location.pathname) history.replaceState(null, '', address);

const zoneName = Intl.DateTimeFormat().resolvedOptions().timeZone;

function span(seconds) {
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86400)} d`;
}

function showTimes() {
  const now = Date.now() - skew;
  for (const time of document.querySelectorAll('time')) {
    const at = Date.parse(time.dateTime);
    if (Number.isNaN(at)) continue;
    const here = new Date(at).toLocaleString(undefined, { dateStyle: 'medium', timeStyle: 'long' });
    time.title = `${here} · ${time.dateTime}`;
    if ('lasting' in time.dataset) {
      time.textContent = `for ${span(Math.max(0, Math.floor((now - at) / 1000)))}`;
    } else if ('age' in time.dataset) {
      const seconds = Math.floor((now - at) / 1000);
      time.textContent = seconds < 0 ? `in ${span(-seconds)}` : `${span(seconds)} ago`;
    } else if ('clock' in time.dataset) {
      time.textContent = new Date(at).toLocaleTimeString(undefined, { timeStyle: 'medium' });
    } else if ('day' in time.dataset) {
      time.textContent = new Date(at).toLocaleString(undefined, { month: 'short', day: 'numeric', hour: '2-digit', minute: '2-digit' });
    } else {
      time.textContent = here;
    }
  }
  for (const label of document.querySelectorAll('[data-zone]')) label.textContent = zoneName;
}

// A link or button that is replaced between press and release gets no click.
let isPressed = false;

function press(event) {
  if (event.type === 'keydown' ? event.key === ' ' : event.button === 0) isPressed = true;
}

function release() {
  if (!isPressed) return;
  isPressed = false;
  // After the click, which follows the release.
  if (again) setTimeout(readAgain, 0);
}

// Changes wait while a person types, selects or presses something.
function isBusy() {
  const active = document.activeElement;
  const isField = active && live.contains(active) && ['INPUT', 'SELECT', 'TEXTAREA'].includes(active.tagName) && active.type !== 'checkbox';
  return isPressed || isField || document.querySelector('[data-sending]') !== null;
}

function replace(html) {
  const next = new DOMParser().parseFromString(html, 'text/html').getElementById('live');
  if (!next) return false;
  const selected = new Set([...live.querySelectorAll('input[type=checkbox]:checked')].map((box) => box.value));
  for (const box of next.querySelectorAll('input[type=checkbox]')) box.checked = selected.has(box.value);
  // The lines of pipelines change their places, so each is known by its name. The others are known by their place.
  const [named, others] = ['details[data-of]', 'details:not([data-of])'];
  const opened = new Set([...live.querySelectorAll(named)].filter((details) => details.open).map((details) => details.dataset.of));
  for (const details of next.querySelectorAll(named)) details.open = opened.has(details.dataset.of);
  const open = [...live.querySelectorAll(others)].map((details) => details.open);
  next.querySelectorAll(others).forEach((details, index) => { if (index < open.length) details.open = open[index]; });
  const fields = (root) => [...root.querySelectorAll('input:not([type=checkbox]):not([type=hidden]), select')];
  const typed = fields(live);
  fields(next).forEach((field, index) => {
    const old = typed[index];
    if (old && 'typed' in old.dataset && old.name === field.name) {
      field.value = old.value;
      field.dataset.typed = '';
    }
  });
  const lines = [...live.querySelectorAll('.scroll')].map((part) => part.scrollLeft);
  const active = live.contains(document.activeElement) ? document.activeElement : null;
  const place = active ? alike(active).indexOf(active) : -1;
  live.replaceChildren(...next.childNodes);
  live.querySelectorAll('.scroll').forEach((part, index) => { if (index < lines.length) part.scrollLeft = lines[index]; });
  prepare();
  if (place >= 0) {
    const found = alike(active);
    found[Math.min(place, found.length - 1)]?.focus({ preventScroll: true });
  }
  return true;
}

// What distinguishes an element from others, wherever it is. The element at the same place can be another link or another delivery by now.
function identity(element) {
  const given = ['id', 'name', 'value', 'href'].map((name) => element.getAttribute(name) ?? '');
  if (given.some((text) => text !== '')) return given.join('\n');
  const words = element.getAttribute('aria-label') ?? '';
  return words === '' && element.matches('button, summary, pre') ? element.textContent : words;
}

// The elements that do the same as this one: several links can have one address. None, if nothing distinguishes it.
function alike(element) {
  const wanted = identity(element);
  if (wanted === '') return [];
  return [...live.querySelectorAll(element.tagName)].filter((other) => identity(other) === wanted);
}

const late = 'Changes are shown some seconds late. The server refuses the connection for them, for example because too many screens are open.';
const ends = { 'signed-out': 'Signed out. Reload the page to sign in.', forbidden: 'You may not read this any more. Reload the page.' };

let reading = false;
let again = false;
let isSignedOut = false;
let isRefused = false;
let pause = 1000;

async function readAgain() {
  if (reading || isSignedOut || isBusy()) {
    again = true;
    return;
  }
  reading = true;
  again = false;
  try {
    const answer = await fetch(location.href, { headers: { Accept: 'text/html' } });
    const html = await answer.text();
    isSignedOut = answer.status === 401;
    if (isSignedOut) {
      stop();
      replace(html);
      say(ends['signed-out']);
    } else if (isBusy()) {
      // A person may have begun to type meanwhile.
      again = true;
    } else if (replace(html)) {
      pause = 1000;
      say(isRefused ? late : '');
    } else {
      failed('The page cannot be read at present. It tries again.');
    }
  } catch {
    failed('The page cannot reach its server. It tries again.');
  }
  reading = false;
  if (again && !isSignedOut && !document.hidden) setTimeout(readAgain, pause);
}

function failed(words) {
  again = true;
  pause = Math.min(pause * 2, 30000);
  say(words);
}

function say(words) {
  if (connection && connection.textContent !== words) connection.textContent = words;
}

let stream = null;

function listen() {
  if (stream || isSignedOut || document.hidden) return;
  stream = new EventSource(`/events?for=${encodeURIComponent(location.pathname + location.search)}`);
  stream.addEventListener('open', () => {
    document.body.dataset.connected = '';
    isRefused = false;
    say('');
  });
  stream.addEventListener('change', readAgain);
  stream.addEventListener('end', (event) => {
    stop();
    readAgain().then(() => { if (!isSignedOut) say(ends[event.data] ?? 'Reload the page.'); });
  });
  stream.addEventListener('error', () => {
    delete document.body.dataset.connected;
    isRefused = stream?.readyState === EventSource.CLOSED;
    if (isRefused) {
      // The server refuses the stream. If it refuses the page too, reading the page says why.
      stop();
      readAgain().then(() => setTimeout(listen, 5000));
    } else {
      say('Changes are not shown at present: the connection is interrupted.');
    }
  });
}

function stop() {
  stream?.close();
  stream = null;
  delete document.body.dataset.connected;
}

// A browser has few connections to one server. A hidden page needs none.
function follow() {
  if (!('live' in document.body.dataset) || !window.EventSource) return;
  document.addEventListener('visibilitychange', () => {
    if (document.hidden) {
      stop();
    } else {
      listen();
      readAgain();
    }
  });
  // What a person has typed is kept until it is sent.
  live.addEventListener('input', (event) => { event.target.dataset.typed = ''; });
  document.addEventListener('focusout', () => { if (again) setTimeout(readAgain, 200); });
  for (const type of ['pointerdown', 'keydown']) live.addEventListener(type, press);
  for (const type of ['pointerup', 'pointercancel', 'keyup', 'dragend', 'blur']) window.addEventListener(type, release);
  window.addEventListener('pagehide', stop);
  window.addEventListener('pageshow', (event) => { if (event.persisted) { listen(); readAgain(); } });
  listen();
}

const BATCH = 10;

// Sends the selected deliveries again in small parts, and shows how far it is.
async function resend(event) {
  const form = event.target;
  const boxes = [...form.querySelectorAll('input[name=delivery]:checked')];
  if (boxes.length <= BATCH) return;
  event.preventDefault();
  const bar = form.querySelector('progress');
  const words = form.querySelector('#progress-words');
  form.dataset.sending = '';
  form.querySelectorAll('button').forEach((button) => { button.disabled = true; });
  bar.hidden = false;
  bar.max = boxes.length;
  const failures = [];
  let [done, requested] = [0, 0];
  while (done < boxes.length) {
    const part = boxes.slice(done, done + BATCH);
    const body = new URLSearchParams({ token: form.elements.token.value, back: form.elements.back.value });
    part.forEach((box) => body.append('delivery', box.value));
    try {
      const answer = await fetch(form.action, { method: 'POST', body });
      const page = new DOMParser().parseFromString(await answer.text(), 'text/html');
      const wrong = [...page.querySelectorAll('#live .notice.bad, #live .notice.warn')].map((notice) => notice.textContent);
      const accepted = Number(page.querySelector('#live [data-requested]')?.dataset.requested ?? 0);
      requested += accepted;
      failures.push(...wrong);
      if (!answer.ok || (accepted === 0 && wrong.length === 0)) {
        if (wrong.length === 0) failures.push('The answer is not from this page. Reload it, and sign in again.');
        break;
      }
    } catch {
      failures.push('The page cannot reach its server. Some of the last ten may have been requested.');
      break;
    }
    done += part.length;
    bar.value = done;
    words.textContent = `${done} of ${boxes.length}`;
  }
  boxes.forEach((box) => { box.checked = false; });
  delete form.dataset.sending;
  await readAgain();
  // Not in the part of the page that changes replace.
  const notices = [`Redeliveries requested: ${requested}.`, ...failures].map((text, index) => {
    const notice = document.createElement('p');
    notice.className = index === 0 ? 'notice good' : 'notice bad';
    notice.textContent = text;
    return notice;
  });
  document.getElementById('done').replaceChildren(...notices);
}

function prepare() {
  showTimes();
  const form = document.getElementById('resend');
  form?.addEventListener('submit', resend);
  const all = form?.querySelector('[data-select=all]');
  if (all) {
    all.hidden = false;
    all.addEventListener('click', () => {
      const boxes = [...form.querySelectorAll('input[name=delivery]')];
      const select = boxes.some((box) => !box.checked);
      boxes.forEach((box) => { box.checked = select; });
    });
  }
}

const zone = document.getElementById('zone');
if (zone) zone.textContent = `Times are in ${zoneName}.`;
prepare();
follow();
setInterval(showTimes, 15000);
