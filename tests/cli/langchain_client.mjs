// What LangChain's client makes of a server: node langchain_client.mjs MODULES URL MODEL
// Prints one line for each thing that was as it should be, and ends with 1 at the first that was not.
import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
const [modules, baseURL, model] = process.argv.slice(2);
const require = createRequire(`${modules}/`);
const { ChatOpenAI, OpenAI, OpenAIEmbeddings } = require('@langchain/openai');
const { HumanMessage, SystemMessage } = require('@langchain/core/messages');
const settings = { model, apiKey: 'key', temperature: 0, maxRetries: 0,
                   configuration: { baseURL: `${baseURL}/v1` } };
const chat = (more = {}) => new ChatOpenAI({ ...settings, maxTokens: 8, ...more });
const talk = [new SystemMessage('Tell stories.'), new HumanMessage('hi')];

const checks = {
  async chat() {
    const answer = await chat().invoke(talk);
    assert.equal(typeof answer.content, 'string');
    assert.ok(answer.usage_metadata.input_tokens > 0);
    assert.equal(answer.usage_metadata.output_tokens, 8);
    assert.equal(answer.response_metadata.finish_reason, 'length');
  },
  async chat_stream() {
    const whole = await chat().invoke(talk);
    let text = '', usage = null;
    for await (const chunk of await chat().stream(talk)) {
      text += chunk.content;
      usage = chunk.usage_metadata ?? usage;
    }
    assert.equal(text, whole.content);
    assert.equal(usage.output_tokens, 8);
  },
  async batch() {
    const answers = await chat().batch([talk, talk, [new HumanMessage('ho')]]);
    assert.equal(answers[0].content, answers[1].content);
  },
  async structured_output() {
    const schema = { title: 'colour', type: 'object', additionalProperties: false,
                     properties: { name: { type: 'string', enum: ['red', 'blue'] } },
                     required: ['name'] };
    const asked = chat({ maxTokens: 40 }).withStructuredOutput(schema, { method: 'jsonSchema' });
    assert.ok(['red', 'blue'].includes((await asked.invoke(talk)).name));
  },
  async completion() {
    const text = await new OpenAI({ ...settings, maxTokens: 8 }).invoke('Once upon a time');
    assert.ok(text.length > 0);
  },
  async embeddings() {
    const embeddings = new OpenAIEmbeddings({ model, apiKey: 'key', maxRetries: 0,
                                              configuration: settings.configuration });
    const [first, second] = await embeddings.embedDocuments(['a red ball', 'a dog']);
    const length = (vector) => Math.sqrt(vector.reduce((sum, value) => sum + value * value, 0));
    assert.ok(Math.abs(length(first) - 1) < 1e-5, `length ${length(first)}`);
    const again = await embeddings.embedQuery('a red ball');
    const product = (a, b) => a.reduce((sum, value, i) => sum + value * b[i], 0);
    assert.ok(product(first, again) > 0.9999);
    assert.ok(product(first, second) < 0.9999);
  },
  async errors() {
    const error = await chat({ model: 'other' }).invoke(talk).then(
        () => assert.fail('it was not refused'), (thrown) => thrown);
    assert.equal(error.status, 404);
  },
};

for (const [name, check] of Object.entries(checks)) {
  await check();
  console.log(`ok ${name}`);
}
