// node flows.mjs PART BUILD PLAYWRIGHT FOLDER: the flows of one part in one browser. Exit status 0 if all of them went well.
import {Bench} from "./setup.mjs";

const [part, build, playwright, folder] = process.argv.slice(2);
const {flows} = await import(`./${part}_flows.mjs`);
const bench = await Bench.start(build, playwright, folder);
let failed = 0;
const only = process.env.DANLU_FLOW ?? ""; // those whose names begin with it, and what fills the runs
for (const [name, flow] of Object.entries(flows)) {
  if (!name.startsWith(only) && !["fills", "theListSaysHowRunsStand"].includes(name)) continue;
  const begun = Date.now();
  bench.problems = [];
  try {
    await flow(bench);
    if (bench.problems.length) throw new Error("the browser complains: " + bench.problems.join("\n"));
    if (bench.foreign.length) throw new Error("asked elsewhere: " + bench.foreign.join("\n"));
    console.log(`ok ${name} (${Date.now() - begun} ms)`);
  } catch (error) {
    ++failed;
    console.log(`not ok ${name}: ${error.stack}`);
  }
  for (const context of bench.browser.contexts()) for (const page of context.pages()) await page.close();
}
await bench.stop();
process.exit(failed ? 1 : 0);
