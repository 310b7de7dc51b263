// What OpenAI's own client makes of a server: node openai_client.mjs PACKAGE URL MODEL [CHECK]
// Without CHECK all but `tools`, which wants a template that leaves room in a small window, and `retries`, which wants
// a server whose queue holds one request.
// Prints one line for each thing that was as it should be, and ends with 1 at the first that was not.
import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
const [directory, baseURL, model, only] = process.argv.slice(2);
const { OpenAI, APIError } = createRequire(import.meta.url)(directory);
const client = new OpenAI({ baseURL: `${baseURL}/v1`, apiKey: 'key', maxRetries: 0 });
const prompt = 'Once upon a time';
const greedy = { model, prompt, max_tokens: 24, temperature: 0 };

async function refused(promise, status, code) {
  const error = await promise.then(() => assert.fail('it was not refused'), (thrown) => thrown);
  assert.ok(error instanceof APIError, String(error));
  assert.equal(error.status, status);
  if (code) assert.equal(error.code, code);
}

const checks = {
  async models() {
    const list = await client.models.list();
    assert.equal(list.data[0].id, model);
    assert.equal((await client.models.retrieve(model)).id, model);
  },
  async completion() {
    const answer = await client.completions.create(greedy);
    assert.equal(answer.choices[0].finish_reason, 'length');
    assert.equal(answer.usage.completion_tokens, 24);
    console.log(`text ${JSON.stringify(answer.choices[0].text)}`);
  },
  async completion_stream() {
    const whole = (await client.completions.create(greedy)).choices[0].text;
    let text = '', usage = null;
    const stream = await client.completions.create(
        { ...greedy, stream: true, stream_options: { include_usage: true } });
    for await (const chunk of stream) {
      text += chunk.choices[0]?.text ?? '';
      usage = chunk.usage ?? usage;
    }
    assert.equal(text, whole);
    assert.equal(usage.completion_tokens, 24);
  },
  async chat() {
    const answer = await client.chat.completions.create(
        { model, messages: [{ role: 'user', content: 'hi' }], max_tokens: 8, temperature: 0, n: 2,
          logprobs: true, top_logprobs: 3 });
    assert.equal(answer.choices.length, 2);
    assert.equal(answer.choices[0].message.content, answer.choices[1].message.content);
    const tokens = answer.choices[0].logprobs.content;
    const ended = answer.choices[0].finish_reason === 'stop' ? 1 : 0; // a token of its own
    assert.equal(tokens.length + ended, answer.usage.completion_tokens / 2);
    assert.equal(tokens[0].top_logprobs.length, 3);
    assert.equal(tokens[0].top_logprobs[0].token, tokens[0].token);
  },
  // The helper is strict: roles, ids and the reason of the end must be there.
  async chat_stream_helper() {
    const request = { model, messages: [{ role: 'user', content: 'hi' }], max_tokens: 8,
                      temperature: 0 };
    const whole = await client.chat.completions.create(request);
    const runner = client.chat.completions.stream(request);
    const final = await runner.finalChatCompletion();
    assert.equal(final.choices[0].message.content, whole.choices[0].message.content);
    assert.equal(final.choices[0].finish_reason, whole.choices[0].finish_reason);
  },
  async seeds() {
    const drawn = { ...greedy, temperature: 1, seed: 3 };
    const first = await client.completions.create(drawn);
    const second = await client.completions.create(drawn);
    assert.equal(first.choices[0].text, second.choices[0].text);
    const other = await client.completions.create({ ...drawn, seed: 4 });
    assert.notEqual(first.choices[0].text, other.choices[0].text);
  },
  async stop() {
    const whole = (await client.completions.create(greedy)).choices[0].text;
    const word = whole.slice(10, 14);
    const cut = await client.completions.create({ ...greedy, stop: [word] });
    assert.equal(cut.choices[0].text, whole.slice(0, whole.indexOf(word)));
    assert.equal(cut.choices[0].finish_reason, 'stop');
  },
  // The client asks for base64 by itself.
  async embeddings() {
    const input = ['a red ball', 'a dog', 'a red ball'];
    const answer = await client.embeddings.create({ model, input });
    assert.equal(answer.data.length, 3);
    assert.deepEqual(answer.data[0].embedding, answer.data[2].embedding);
    const whole = await client.embeddings.create({ model, input, encoding_format: 'float' });
    whole.data[1].embedding.forEach(
        (value, i) => assert.ok(Math.abs(value - answer.data[1].embedding[i]) < 1e-6));
    const squares = whole.data[1].embedding.reduce((sum, value) => sum + value * value, 0);
    assert.ok(Math.abs(squares - 1) < 1e-5);
    assert.equal(whole.usage.total_tokens, whole.usage.prompt_tokens);
    await refused(client.embeddings.create({ model, input: 'a', dimensions: 8 }), 400);
    await refused(client.embeddings.create({ model, input: 'a dog '.repeat(500) }), 400,
                  'context_length_exceeded');
  },
  async structured() {
    const schema = { type: 'object', additionalProperties: false, required: ['name', 'legs'],
                     properties: { name: { type: 'string', maxLength: 12 },
                                   legs: { type: 'integer', minimum: 2, maximum: 4 } } };
    const request = { model, messages: [{ role: 'user', content: 'a dog' }], max_tokens: 80,
                      temperature: 0, response_format: { type: 'json_schema', json_schema: {
                        name: 'animal', strict: true, schema } } };
    const { parsed } = (await client.chat.completions.parse(request)).choices[0].message;
    assert.equal(typeof parsed.name, 'string');
    assert.ok(parsed.legs >= 2 && parsed.legs <= 4);
    await refused(client.chat.completions.create({ ...request, response_format: {
      type: 'json_schema', json_schema: { name: 'animal', schema: { type: 'animal' } } } }), 400);
  },
  async errors() {
    await refused(client.completions.create({ ...greedy, model: 'other' }), 404, 'model_not_found');
    await refused(client.completions.create({ ...greedy, temperature: 5 }), 400);
    await refused(client.completions.create({ ...greedy, max_tokens: 1000000 }), 400,
                  'context_length_exceeded');
    await refused(client.chat.completions.create({ model, messages: [] }), 400);
    await refused(new OpenAI({ baseURL: `${baseURL}/v1`, apiKey: 'wrong', maxRetries: 0 })
                      .models.list(), 401, 'invalid_api_key');
  },
  async abort() {
    const stream = await client.completions.create(
        { model, prompt: Array(500).fill(prompt), max_tokens: 110, ignore_eos: true, stream: true });
    for await (const chunk of stream) {
      assert.ok(chunk.choices[0]);
      break;
    }
    for (let i = 0; i < 400; ++i) {
      const text = await (await fetch(`${baseURL}/metrics`)).text();
      if (/num_requests_running\{[^}]*\} 0\b/.test(text)) return;
      await new Promise((resolve) => setTimeout(resolve, 25));
    }
    assert.fail('the request goes on without its client');
  },
};

const extra = {
  async tools() {
    const tools = [{ type: 'function', function: { name: 'feed', parameters: {
      type: 'object', additionalProperties: false, required: ['who'],
      properties: { who: { type: 'string', enum: ['dog', 'cat'] } } } } }];
    const request = { model, messages: [{ role: 'user', content: 'hungry' }], max_tokens: 90,
                      temperature: 0, tools, tool_choice: { type: 'function',
                                                            function: { name: 'feed' } } };
    const whole = (await client.chat.completions.create(request)).choices[0];
    assert.equal(whole.finish_reason, 'stop'); // of a function that the request names
    const [call] = whole.message.tool_calls;
    assert.equal(call.function.name, 'feed');
    assert.ok(['dog', 'cat'].includes(JSON.parse(call.function.arguments).who));
    const runner = client.chat.completions.stream(request);
    const streamed = (await runner.finalChatCompletion()).choices[0].message.tool_calls;
    assert.deepEqual(streamed.map((one) => one.function.arguments), [call.function.arguments]);
    // The answer to a call goes into the next request.
    const next = await client.chat.completions.create({ model, max_tokens: 8, messages: [
      ...request.messages, whole.message,
      { role: 'tool', tool_call_id: call.id, content: 'it has eaten' }] });
    assert.equal(next.choices[0].message.role, 'assistant');
  },
  // What is turned away comes again by itself, after the time that the server names.
  async retries() {
    let turned_away = 0;
    const patient = new OpenAI({ baseURL: `${baseURL}/v1`, apiKey: 'key', maxRetries: 20,
                                 fetch: async (...request) => {
                                   const response = await fetch(...request);
                                   if (response.status === 429) {
                                     assert.equal(response.headers.get('retry-after'), '1');
                                     ++turned_away;
                                   }
                                   return response;
                                 } });
    const long = { ...greedy, max_tokens: 110, ignore_eos: true };
    const answers = await Promise.all(
        Array.from({ length: 8 }, () => patient.completions.create(long)));
    for (const answer of answers) assert.equal(answer.usage.completion_tokens, 110);
    assert.equal(new Set(answers.map((answer) => answer.choices[0].text)).size, 1);
    assert.ok(turned_away > 0);
  },
};

for (const [name, check] of only ? [[only, extra[only]]] : Object.entries(checks)) {
  await check();
  console.log(`ok ${name}`);
}
