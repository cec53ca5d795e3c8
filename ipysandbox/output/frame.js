/* Runs first in an isolated output's frame: takes away what the frame's policy doesn't govern, then mounts the output.
 *
 * The content security policy of the frame lets nothing be fetched. It has no word for three things that reach the
 * network all the same: WebRTC, `<link rel=dns-prefetch>` and `preconnect`, and frames inside (each a fresh realm that
 * has WebRTC again). So no such element is ever made here: markup from strings passes a Trusted Types policy, and the
 * calls that make elements are wrapped. Hostile code runs later in this very realm: what is used after that is taken
 * from prototypes now, and never looked up again.
 */
(() => {
  "use strict";
  const BANNED = [
    ...["applet", "base", "embed", "fencedframe", "frame", "frameset", "iframe", "link", "meta", "object", "portal"],
    "webview",
  ];
  const LONGEST = 11;
  const REMOVED = /^(?:webkit|moz)?(?:RTC|Speech|speechSynthesis|XSLTProcessor)/;
  const PARSERS = ["innerHTML", "outerHTML", "getHTML", "insertAdjacentHTML", "setHTMLUnsafe", "parseHTMLUnsafe"];

  const uncurry = Function.prototype.bind.bind(Function.prototype.call);
  const getter = (type, name) => uncurry(Object.getOwnPropertyDescriptor(type.prototype, name).get);
  const apply = Reflect.apply;
  const indexOf = uncurry(String.prototype.indexOf);
  const slice = uncurry(String.prototype.slice);
  const lower = uncurry(String.prototype.toLowerCase);
  const localName = getter(Element, "localName");
  const root = getter(Document, "documentElement");
  const insertAdjacentHTML = uncurry(Element.prototype.insertAdjacentHTML);
  const createElement = uncurry(Document.prototype.createElement);
  const userActive = getter(UserActivation, "isActive");
  const activation = navigator.userActivation;
  const makeUrl = URL.createObjectURL;
  const ours = document;
  const { head, body, currentScript: self } = document;
  const page = window.parent.parent;
  const libraries = Object.create(null);
  let mounting = true;

  const isBanned = (name) => {
    for (let at = 0; at < BANNED.length; at++) if (BANNED[at] === name) return true;
    return false;
  };

  // `<iframe` becomes `<x-iframe`, wherever it stands: a tag's name is nothing else than these characters. In an XML
  // document a prefix may come first (`<h:iframe`), of any length.
  const defuse = (text) => {
    let done = "";
    let from = 0;
    for (let at = indexOf(text, "<"); at >= 0; at = indexOf(text, "<", at + 1)) {
      let start = at + 1;
      for (let end = start; end < text.length; end++) {
        const one = slice(text, end, end + 1);
        if (indexOf(" \t\n\f\r/><", one) >= 0) break;
        if (one === ":") start = end + 1;
      }
      const next = lower(slice(text, start, start + LONGEST));
      for (let one = 0; one < BANNED.length; one++) {
        if (slice(next, 0, BANNED[one].length) === BANNED[one]) {
          done += slice(text, from, start) + "x-";
          from = start;
          break;
        }
      }
    }
    return done + slice(text, from);
  };

  const scriptUrl = (code) => makeUrl(new Blob([code], { type: "text/javascript" }));
  const addressOf = (url) => (url in libraries ? (libraries[url].url ??= scriptUrl(libraries[url].code)) : url);

  const replace = (type, name, value) =>
    Object.defineProperty(type.prototype, name, { value, writable: true, configurable: true });

  const wrapMakers = () => {
    for (const name of ["createElement", "createElementNS"]) {
      const native = Document.prototype[name];
      replace(Document, name, function (...given) {
        const made = apply(native, this, given);
        return isBanned(localName(made)) ? createElement(ours, "x-left-out") : made;
      });
    }
    const createDocument = DOMImplementation.prototype.createDocument;
    replace(DOMImplementation, "createDocument", function (...given) {
      const made = apply(createDocument, this, given);
      const first = root(made);
      return first && isBanned(localName(first)) ? null : made;
    });
    // XML can spell a name by entities, which no pattern sees.
    const parse = DOMParser.prototype.parseFromString;
    replace(DOMParser, "parseFromString", function (text, type) {
      const [markup, kind] = [`${text}`, `${type}`];
      const low = kind === "text/html" ? "" : lower(markup);
      if (indexOf(low, "<!doctype") >= 0 || indexOf(low, "<!entity") >= 0) {
        throw new SyntaxError("XML with a document type is not read in an isolated output");
      }
      return apply(parse, this, [markup, kind]);
    });
    // With `extends`, a class of one's own could be an <iframe> or a <link>.
    const define = CustomElementRegistry.prototype.define;
    replace(CustomElementRegistry, "define", function (name, made) {
      return apply(define, this, [name, made]);
    });
    // A text written in two parts would pass the policy in two parts.
    const write = (...texts) => insertAdjacentHTML(body, "beforeend", texts.join(""));
    for (const name of ["write", "writeln"]) replace(Document, name, write);
    for (const name of ["open", "close", "execCommand"]) replace(Document, name, () => null);
  };

  const removeWaysOut = () => {
    for (const name of Object.getOwnPropertyNames(window)) {
      if (REMOVED.test(name)) delete window[name];
    }
    delete Navigator.prototype.mediaSession; // its pictures are fetched by the browser itself
    for (const type of [Element, ShadowRoot, Document, DocumentFragment, Range, HTMLTemplateElement]) {
      for (const holder of [type, type.prototype]) {
        for (const name of Object.getOwnPropertyNames(holder)) {
          if (/html/i.test(name) && !PARSERS.includes(name)) delete holder[name];
        }
      }
    }
  };

  // What the user types is meant for the notebook until a click has said otherwise.
  const keepFocusAway = () => {
    for (const [type, name] of [
      ...[HTMLElement, SVGElement, MathMLElement].map((type) => [type, "focus"]),
      ...["show", "showModal"].map((name) => [HTMLDialogElement, name]),
      ...["showPopover", "togglePopover"].map((name) => [HTMLElement, name]),
      ...[HTMLInputElement, HTMLTextAreaElement].map((type) => [type, "select"]),
      ...["addRange", "collapse", "extend", "modify", "selectAllChildren", "setBaseAndExtent", "setPosition"].map(
        (name) => [Selection, name],
      ),
    ]) {
      const native = type.prototype[name];
      if (!native) continue;
      replace(type, name, function (...given) {
        return userActive(activation) ? apply(native, this, given) : undefined;
      });
    }
    window.focus = () => undefined;
  };

  const say = (text) => {
    const line = createElement(ours, "p");
    line.textContent = text;
    line.style.cssText = "font: 13px sans-serif; color: #555; margin: 4px";
    body.append(line);
  };

  // The tree of a document that has no window: nothing in it has run or loaded yet. `querySelectorAll` and the like are
  // asked of prototypes, since a form's or document's own names can stand before them.
  const sweep = (tree, type) => {
    for (const element of type.prototype.querySelectorAll.call(tree, "*")) {
      if (isBanned(localName(element))) Element.prototype.remove.call(element);
      else if (element instanceof HTMLTemplateElement) sweep(getter(HTMLTemplateElement, "content")(element), DocumentFragment);
    }
  };

  const runs = /^(?:|module|(?:text|application)\/(?:x-)?(?:java|ecma)script)$/i;
  const text = getter(HTMLScriptElement, "text");
  const attribute = uncurry(Element.prototype.getAttribute);
  const indirect = eval;

  const run = (script) =>
    new Promise((resolve) => {
      const from = attribute(script, "src");
      if (from !== null && !(from in libraries) && !/^(?:data|blob):/i.test(from)) {
        resolve();
        return;
      }
      const fresh = createElement(ours, "script");
      for (const { name, value } of script.attributes) {
        if (!/^(?:src|integrity|crossorigin|nonce|async|defer)$/i.test(name)) fresh.setAttribute(name, value);
      }
      const code = from in libraries ? libraries[from].code : text(script);
      fresh.onload = resolve;
      fresh.onerror = () => {
        // The page around may allow no blob: scripts, as VS Code's does; then it allows this.
        try {
          if (fresh.type !== "module") indirect(code);
        } catch (error) {
          reportError(error);
        }
        resolve();
      };
      fresh.async = false;
      fresh.src = from !== null && !(from in libraries) ? from : scriptUrl(code);
      script.replaceWith(fresh);
    });

  const unpack = (packed) => {
    const bytes = Uint8Array.from(atob(packed), (one) => one.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
  };

  const mount = async ([markup, ...rest], trusted) => {
    for (const [url, packed] of rest) libraries[url] = { code: await unpack(packed), url: null };
    const source = new DOMParser().parseFromString(trusted.createHTML(await unpack(markup[1])), "text/html");
    mounting = false;
    const whole = root(source);
    sweep(whole, Element);
    const scripts = [...Element.prototype.querySelectorAll.call(whole, "script")].filter((one) => runs.test(one.type));
    const [theirHead, theirBody] = [getter(Document, "head")(source), getter(Document, "body")(source)];
    for (const name of ["class", "style"]) {
      const value = theirBody && attribute(theirBody, name);
      if (value) body.setAttribute(name, value);
    }
    const nodes = getter(Node, "childNodes");
    wrapMakers(); // before anything of theirs is in the document: a handler could run at once
    if (theirHead) head.append(...nodes(theirHead));
    if (theirBody) body.append(...nodes(theirBody));
    const report = follow();
    for (const script of scripts) await run(script);
    ours.dispatchEvent(new Event("DOMContentLoaded", { bubbles: true }));
    dispatchEvent(new Event("load"));
    report();
  };

  // The page around sets the frame's height by this, within bounds of its own; without its help the frame scrolls.
  const follow = () => {
    const rect = uncurry(Element.prototype.getBoundingClientRect);
    const scrollHeight = getter(Element, "scrollHeight");
    const whole = ours.documentElement;
    const tell = uncurry(page.postMessage);
    let last = -1;
    const report = () => {
      const height = Math.ceil(Math.max(rect(whole).height, scrollHeight(body)));
      if (height !== last) tell(page, { ipysandboxHeight: (last = height) }, "*");
    };
    report(); // by itself: an observer sleeps while its frame is out of sight
    const observer = new ResizeObserver(report);
    for (const one of [body, ...body.children]) observer.observe(one);
    return report;
  };

  const parts = [...body.children].filter((one) => one !== self).map((one) => [one.dataset.for, one.text]);
  body.replaceChildren();
  if (!window.trustedTypes) {
    say("This output needs a browser with Trusted Types (Chrome, Edge, Firefox 148, Safari 26 or newer).");
    return;
  }
  removeWaysOut();
  keepFocusAway();
  trustedTypes.createPolicy("default", {
    createHTML: defuse,
    createScript: (code) => code,
    createScriptURL: addressOf,
  });
  const trusted = trustedTypes.createPolicy("ipysandbox", { createHTML: (html) => (mounting ? html : defuse(html)) });
  delete window.trustedTypes; // a library that finds it would make a policy of its own, which is refused
  mount(parts, trusted).catch((error) => say(`This output could not be shown: ${error}`));
})();
