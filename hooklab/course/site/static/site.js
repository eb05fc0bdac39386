// What the pages do: guesses, explorers, and a search that finds an error message as torch prints it.
"use strict";
window.hooklabExplorers = {};

// --- guesses: nothing of the answer is in sight before a choice

function setUpGuess(guess) {
  const id = guess.dataset.guess;
  const meaning = document.querySelector(`[data-meaning="${id}"]`);
  const results = document.querySelectorAll(`.tag_after-${id} details.hide`);
  if (!meaning) return;
  meaning.hidden = true;
  results.forEach((result) => { result.hidden = true; });

  const tell = (value, name, button) => {
    const { right, came } = meaning.dataset;
    const met = right !== undefined && Math.abs(right - value) <= 1e-6 * Math.max(1, Math.abs(right));
    guess.querySelectorAll("button").forEach((one) => {
      one.setAttribute("aria-pressed", String(one === button));
      one.classList.toggle("right", one.dataset.choice !== undefined && one.dataset.choice === right);
    });
    const items = [...meaning.querySelectorAll("li")];
    const own = items.find((item) => Number(item.dataset.choice) === value) || items[items.length - 1];
    items.forEach((item) => item.classList.toggle("chosen", item === own));
    let verdict = `You said ${name}.`;
    if (met) verdict = `Right: you said ${name}, and that is what came out.`;
    else if (came) verdict = `Not this time: you said ${name}; what came out is ${came}.`;
    meaning.querySelector(".verdict").textContent = verdict;
    [meaning, ...results].forEach((part) => { part.hidden = false; part.open = true; });
  };

  const choices = guess.querySelector(".choices");
  if (choices) {
    choices.querySelectorAll("li").forEach((item, place) => {
      const button = document.createElement("button");
      button.type = "button";
      button.dataset.choice = item.dataset.choice;
      button.innerHTML = item.innerHTML;
      button.setAttribute("aria-pressed", "false");
      button.addEventListener("click", () => tell(place, `${"abcd"[place]}) ${item.textContent}`, button));
      item.replaceChildren(button);
    });
  } else {
    const form = document.createElement("form");
    form.innerHTML = '<label>Your number <input type="text" inputmode="decimal" autocomplete="off" required></label> '
      + "<button>That is my guess</button>";
    const field = form.querySelector("input");
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const value = Number(field.value.trim().replace(",", "."));
      field.setCustomValidity(Number.isFinite(value) ? "" : "Type a number, such as 3 or 0.5.");
      if (field.reportValidity()) tell(value, String(value), null);
    });
    field.addEventListener("input", () => field.setCustomValidity(""));
    guess.querySelector(".number").replaceWith(form);
  }
}

// --- explorers: every position was drawn when the site was built

function setUpExplorer(figure) {
  const name = figure.dataset.explorer;
  const controls = [...figure.querySelectorAll("input, select")];
  const image = figure.querySelector("img");
  const sentence = figure.querySelector("figcaption");
  const source = image.getAttribute("src").replace(/\.svg$/, ".js");
  let loading = null;

  const load = () => {
    loading ||= new Promise((resolve) => {
      const script = document.createElement("script");
      script.src = source;
      script.addEventListener("load", resolve);
      document.head.append(script);
    });
    return loading;
  };
  const place = (control) => {
    if (control.type === "checkbox") return Number(control.checked);
    return control.tagName === "SELECT" ? control.selectedIndex : Number(control.value);
  };
  const size = (control) => {
    if (control.type === "checkbox") return 2;
    return control.tagName === "SELECT" ? control.options.length : Number(control.max) + 1;
  };
  const show = async () => {
    controls.filter((control) => control.type === "range").forEach((control) => {
      const label = JSON.parse(control.dataset.labels)[control.value];
      control.setAttribute("aria-valuetext", label);
      control.parentElement.querySelector("output").textContent = label;
    });
    await load();
    const drawn = window.hooklabExplorers[name];
    const position = controls.reduce((sum, control) => sum * size(control) + place(control), 0);
    const parts = drawn.pictures[drawn.at[position]].map((part) => drawn.parts[part]);
    image.src = `data:image/svg+xml,${encodeURIComponent(`${drawn.head}${parts.join("")}</svg>`)}`;
    sentence.textContent = image.alt = drawn.says[drawn.said[position]];
  };

  ["pointerenter", "focusin"].forEach((event) => figure.addEventListener(event, load, { once: true }));
  controls.forEach((control) => control.addEventListener("input", show));
  figure.querySelector(".controls").hidden = false;
}

// --- search: a long message is found although no page has all of its words

function setUpSearch() {
  const ofAllWords = Search.performTermsSearch;
  Search.performTermsSearch = (words, excluded) => {
    const found = ofAllWords(words, excluded);
    const { indexentries, docnames, titles, filenames } = Search._index;
    for (const [entry, answers] of Object.entries(indexentries)) {
      const hits = [...words].filter((word) => entry.includes(word)).length;
      if (words.size > 2 && hits >= 0.6 * words.size) {
        for (const [file, id] of answers) {
          const score = Math.round((100 * hits) / words.size) - 1;
          found.push([docnames[file], titles[file], `#${id}`, entry, score, filenames[file], "index"]);
        }
      }
    }
    return found;
  };
}

document.addEventListener("DOMContentLoaded", () => {
  document.querySelectorAll(".guess").forEach(setUpGuess);
  document.querySelectorAll(".explorer").forEach(setUpExplorer);
  if (typeof Search !== "undefined") setUpSearch();
});
