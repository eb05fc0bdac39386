// What the pages do: guesses, explorers, and a search that finds an error message as torch prints it.
"use strict";
window.hooklabExplorers = {};

// --- guesses: nothing of the answer is in sight before a choice
function setUpGuess(guess) {
  const id = guess.dataset.guess;
  const meaning = document.querySelector(`[data-meaning="${id}"]`);
  const answers = [meaning, ...document.querySelectorAll(`.tag_after-${id} details.hide, details.after-${id}`)];
  answers.forEach((part) => { part.hidden = true; });
  const tell = (value) => {
    const items = [...meaning.querySelectorAll("li")];
    const own = items.find((item) => Math.abs(item.dataset.choice - value) < 1e-6) || items.at(-1);
    items.forEach((item) => item.classList.toggle("chosen", item === own));
    const said = own.dataset.choice ? own.querySelector("b").textContent : value;
    const came = meaning.querySelector("li.right b").textContent;
    meaning.querySelector(".verdict").textContent = own.classList.contains("right")
      ? `Right: you said ${said}, and that is what came out.`
      : `Not this time: you said ${said}; what came out is ${came}.`;
    answers.forEach((part) => { part.hidden = false; part.open = true; });
  };

  guess.querySelectorAll("li").forEach((item, place) => {
    const button = document.createElement("button");
    Object.assign(button, { type: "button", innerHTML: item.innerHTML, ariaPressed: "false" });
    button.addEventListener("click", () => {
      guess.querySelectorAll("button").forEach((one) => { one.ariaPressed = String(one === button); });
      tell(place);
      guess.querySelectorAll("li")[meaning.querySelector("li.right").dataset.choice].classList.add("right");
    });
    item.replaceChildren(button);
  });
  guess.querySelectorAll("form").forEach((form) => {
    form.hidden = false;
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      tell(form.querySelector("input").valueAsNumber);
    });
  });
}

// --- explorers: every position was drawn when the site was built
function setUpExplorer(figure) {
  const controls = [...figure.querySelectorAll("input, select")];
  const image = figure.querySelector("img");
  let playing;
  const place = (control) => {
    if (control.type === "checkbox") return +control.checked;
    return control.selectedIndex ?? Math.round((control.value - control.min) / control.step);
  };
  const show = () => {
    figure.querySelectorAll("output").forEach((label) => { label.value = label.previousElementSibling.value; });
    const { parts, shown } = window.hooklabExplorers[figure.dataset.explorer];
    const position = controls.reduce((before, control) => before * control.dataset.count + place(control), 0);
    const [sentence, ...picture] = shown[position].map((part) => parts[part]);
    image.src = `data:image/svg+xml,${encodeURIComponent(picture.join(""))}`;
    figure.querySelector("figcaption").textContent = image.alt = sentence;
    const last = sentence.match(/^Step \d+ of (\d+)/); // another setting of the switches has more steps, or fewer
    if (last) figure.querySelectorAll("[type=range]").forEach((slider) => { slider.max = last[1]; slider.nextElementSibling.value = slider.value; });
  };
  const stopped = () => { clearInterval(playing); show(); };
  figure.addEventListener("input", stopped);
  figure.querySelectorAll("button").forEach((button) => button.addEventListener("click", () => {
    const slider = button.previousElementSibling.querySelector("input");
    slider.value = slider.min;
    stopped();
    playing = setInterval(() => {
      if (slider.value === slider.max) clearInterval(playing);
      slider.stepUp();
      show();
    }, 900);
  }));
  figure.querySelector(".controls").hidden = false;
}

// --- search: a long message is found although no page has all of its words
function setUpSearch() {
  const ofAllWords = Search.performTermsSearch;
  Search.performTermsSearch = (words, excluded) => {
    const { indexentries, docnames, titles, filenames } = Search._index;
    const ofMost = Object.entries(indexentries).flatMap(([entry, answers]) => {
      const share = [...words].filter((word) => entry.includes(word)).length / words.size;
      if (words.size < 2 || share < 0.6) return [];
      return answers.map(([at, id]) =>
        [docnames[at], titles[at], `#${id}`, entry, Math.round(100 * share) - 1, filenames[at], "index"]);
    });
    const found = ofAllWords(words, excluded);
    const ofAllButOne = found.length ? [] : [...words].flatMap((left) => ofAllWords(new Set([...words].filter((word) => word !== left)), excluded));
    return [...found, ...ofAllButOne, ...ofMost];
  };
}

// --- print: dark on white
const page = document.documentElement.dataset;
let onScreen;
addEventListener("beforeprint", () => { onScreen = page.theme; page.theme = "light"; });
addEventListener("afterprint", () => { page.theme = onScreen; });

// --- what is wider than a phone is moved with the arrow keys, too
const wide = () => document.querySelectorAll(".bd-article :is(table, .cell_output, pre.aligned)").forEach((part) => {
  if (part.scrollWidth > part.clientWidth) part.tabIndex = 0;
});
["load", "resize", "toggle"].forEach((event) => addEventListener(event, wide, true));
document.addEventListener("DOMContentLoaded", () => {
  document.querySelectorAll("td code .pre").forEach((name) => { name.innerHTML = name.innerHTML.replace(/[._](?=\w)/g, "$&<wbr>"); });
  document.querySelectorAll(".cell_output pre").forEach(({ classList, textContent }) => {
    if (/\S {2,}\S/.test(textContent) && !/.{100}/.test(textContent)) classList.add("aligned");
  });
  document.querySelectorAll(".bd-article table").forEach((table) => { // on a phone: a card for each row
    const heads = [...table.querySelectorAll("th")].map((head) => head.textContent);
    table.classList.toggle("cards", table.scrollWidth > table.clientWidth);
    table.querySelectorAll("td").forEach((cell) => { cell.dataset.label = heads[cell.cellIndex] ?? ""; });
  });
  document.querySelectorAll(".guess").forEach(setUpGuess);
  document.querySelectorAll(".explorer").forEach(setUpExplorer);
  if (typeof Search !== "undefined") setUpSearch();
});
