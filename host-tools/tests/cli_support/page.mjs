// The page of `dmexp serve` in a real browser. node page.mjs URL MODULES BROWSER SCREENSHOT: MODULES is the folder that has puppeteer-core, BROWSER a Chromium.
import assert from "node:assert";
import { createRequire } from "node:module";

const [url, modules, browserPath, screenshot] = process.argv.slice(2);
const puppeteer = createRequire(modules + "/")("puppeteer-core");
const browser = await puppeteer.launch({ executablePath: browserPath, headless: "shell", args: ["--no-sandbox", "--disable-gpu", "--single-process", "--no-zygote"] });
try {
  const page = await browser.newPage();
  const wrong = [], asked = [];
  page.on("pageerror", error => wrong.push(error.message));
  page.on("console", message => { if (message.type() === "error" && !message.text().includes("status of 400")) wrong.push(message.text()); });
  page.on("request", request => asked.push(request.url()));
  await page.setViewport({ width: 1100, height: 700 });
  await page.goto(url, { waitUntil: "networkidle0" });
  const text = selector => page.$eval(selector, element => element.textContent);
  const value = (id, to) => page.$eval("#" + id, (element, to) => { element.value = to; }, to);
  await value("seed", "3");
  await value("max_tokens", "24");

  // With the keyboard alone: the text has the focus, Enter sends, Tab and the arrows reach the tokens.
  await page.keyboard.type("Hello");
  await page.keyboard.press("Enter");
  await page.waitForSelector(".said.model .token");
  await page.waitForFunction(() => !document.getElementById("send").disabled);
  const first = await text(".said.model span");
  assert.ok(first.length > 0);
  assert.strictEqual(await page.evaluate(() => document.activeElement.id), "text");
  await page.focus(".token");
  await page.keyboard.press("ArrowRight");
  assert.ok(await page.evaluate(() => document.activeElement.classList.contains("token") && document.activeElement.previousElementSibling !== null));
  assert.strictEqual(await text("#tip"), await page.evaluate(() => document.activeElement.dataset.tip), "the keyboard shows probabilities too");
  assert.match(await text("#tip"), /%/);
  assert.ok(await page.$eval("#tip", element => !element.hidden));
  await page.hover(".token");
  assert.strictEqual(await text("#tip"), await page.$eval(".token", element => element.dataset.tip));
  assert.match(await text(".bar .note"), /^\d+ tokens, [\d.]+ a second, seed 3$/);

  // Goes to an element as Tab does; with Shift backwards.
  const reach = async (id, back = true) => {
    for (let presses = 0; presses < 40; presses++) {
      if (await page.evaluate(() => document.activeElement.id) === id) return;
      if (back) await page.keyboard.down("Shift");
      await page.keyboard.press("Tab");
      if (back) await page.keyboard.up("Shift");
    }
    assert.fail(id + " is not reached");
  };

  // The next turn, and two models side by side, by the keyboard: the conversation stays.
  await page.focus("#text");
  await page.keyboard.type("More");
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => document.querySelectorAll(".said.model").length === 2 && !document.getElementById("send").disabled);
  await reach("compare");
  await page.keyboard.press("Space");
  await page.waitForFunction(() => document.querySelectorAll(".column").length === 2);
  assert.strictEqual((await page.$$(".said.model")).length, 2);
  assert.deepStrictEqual(await page.$$eval("select", selects => selects.map(select => select.value)), ["m", "q"]);
  await reach("fresh", false);
  await page.keyboard.press("Enter");
  assert.strictEqual((await page.$$(".said.model")).length, 0);
  await reach("text", false);
  await page.keyboard.type("Hello");
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => document.querySelectorAll(".said.model .token").length > 1 && !document.getElementById("send").disabled);
  const answers = await page.$$eval(".said.model > span:first-of-type", elements => elements.map(element => element.textContent));
  assert.strictEqual(answers.length, 2);
  assert.strictEqual(answers[0], first, "the same seed gives the same text");
  await page.screenshot({ path: screenshot + "-two.png" });

  // What is refused is said in red, was not said to the model, and can be mended.
  await value("max_tokens", "100000");
  await page.keyboard.type("Too much");
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => document.querySelectorAll(".said.model .wrong").length === 2 && !document.getElementById("send").disabled);
  assert.match(await text(".said.model .wrong"), /100000 new tokens/);
  assert.strictEqual(await page.$eval("#text", element => element.value), "Too much");
  await value("max_tokens", "24");
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => document.querySelectorAll(".said.model").length === 6 && !document.getElementById("send").disabled);
  assert.strictEqual((await page.$$(".said.model .wrong")).length, 2);

  // Facts of a model; light and dark.
  await page.evaluate(() => [...document.querySelectorAll(".bar button")][0].click());
  await page.waitForSelector("#facts[open]");
  const facts = await text("#facts");
  for (const part of ["fingerprint", "context", "tok_embeddings", "Header"]) assert.ok(facts.includes(part), part);
  await page.screenshot({ path: screenshot + "-facts.png" });
  await page.keyboard.press("Escape");
  const back = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const before = await back();
  await page.screenshot({ path: screenshot + "-light.png" });
  await reach("theme");
  await page.keyboard.press("Enter");
  assert.notStrictEqual(await back(), before);
  await page.hover(".token");
  await page.screenshot({ path: screenshot + "-dark.png" });

  // Escape stops an answer.
  await page.click("#fresh");
  await value("max_tokens", "100");
  await page.focus("#text");
  await page.keyboard.type("Go on");
  await page.keyboard.press("Enter");
  await page.keyboard.press("Escape");
  await page.waitForFunction(() => !document.getElementById("send").disabled);
  assert.deepStrictEqual(wrong, []);
  assert.ok(asked.every(address => address.startsWith(url)), asked.join(" "));
} finally {
  await browser.close();
}
