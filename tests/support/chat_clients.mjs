import OpenAI from 'openai'
import { createOpenAICompatible } from '@ai-sdk/openai-compatible'
import { generateText, streamText, DefaultChatTransport, readUIMessageStream } from 'ai'
import { HttpAgent } from '@ag-ui/client'
const url = process.env.URL, key = process.env.KEY
const found = {}
const headers = { Authorization: `Bearer ${key}` }
{
  const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: key })
  const models = []
  for await (const each of client.models.list()) models.push(each.id)
  const whole = await client.chat.completions.create({ model: 'echo', messages: [{ role: 'user', content: 'hello' }] })
  let streamed = ''
  let usage
  for await (const chunk of await client.chat.completions.create({ model: 'poet', stream: true, stream_options: { include_usage: true }, messages: [{ role: 'user', content: 'Bees fly.' }] })) {
    streamed += chunk.choices[0]?.delta?.content ?? ''
    usage = chunk.usage ?? usage
  }
  const response = await client.responses.create({ model: 'echo', input: 'hello' })
  const events = []
  const stream = client.responses.stream({ model: 'echo', input: 'hello' })
  for await (const event of stream) events.push(event.type)
  const final = await stream.finalResponse()
  let refused
  try { await client.chat.completions.create({ model: 'fail', messages: [{ role: 'user', content: 'x' }] }) } catch (error) { refused = [error.status, error.code] }
  found.openai = { models, whole: whole.choices[0].message.content, streamed, usage, response: response.output_text, events, final: final.output_text, refused }
}
{
  const provider = createOpenAICompatible({ name: 'flows', baseURL: `${url}/v1`, apiKey: key, includeUsage: true })
  const { text, usage } = await generateText({ model: provider('echo'), prompt: 'hello' })
  const result = streamText({ model: provider('echo'), prompt: 'hello' })
  let streamed = ''
  for await (const piece of result.textStream) streamed += piece
  found.compatible = { text, usage, streamed }
}
async function chat(transport, id, messages) {
  const stream = await transport.sendMessages({ chatId: id, messages, trigger: 'submit-message', messageId: undefined, abortSignal: undefined })
  let last
  for await (const message of readUIMessageStream({ stream, message: messages.at(-1).role === 'assistant' ? messages.at(-1) : undefined })) last = message
  return last
}
{
  const said = (text) => ({ id: `u-${text}`, role: 'user', parts: [{ type: 'text', text }] })
  const poet = await chat(new DefaultChatTransport({ api: `${url}/ai-sdk/poet`, headers }), 'c1', [said('Bees fly.')])
  const clerk = await chat(new DefaultChatTransport({ api: `${url}/ai-sdk/clerk`, headers }), 'c2', [said('17')])
  const ship = new DefaultChatTransport({ api: `${url}/ai-sdk/ship`, headers })
  const asked = await chat(ship, 'c3', [said('v2')])
  const question = structuredClone(asked.parts.find((part) => part.type === 'dynamic-tool'))
  const answered = { ...asked, parts: asked.parts.map((part) => part.type === 'dynamic-tool' ? { ...part, state: 'output-available', output: { choice: 'ship it' } } : part) }
  const done = await chat(ship, 'c3', [said('v2'), answered])
  let refused
  try { await chat(new DefaultChatTransport({ api: `${url}/ai-sdk/ship` }), 'c4', [said('v2')]) } catch (error) { refused = String(error.message) }
  found.aisdk = { poet, clerk, question, done, refused }
}
{
  const run = async (flow, options, agent = new HttpAgent({ url: `${url}/ag-ui/${flow}`, headers, threadId: `t-${flow}` })) => {
    const events = []
    if (options.say) agent.addMessage({ id: `u-${options.say}`, role: 'user', content: options.say })
    const { result, newMessages } = await agent.runAgent({ resume: options.resume, forwardedProps: options.forwardedProps }, { onEvent: ({ event }) => { events.push(event) } })
    return { agent, events, result, newMessages }
  }
  const poet = await run('poet', { say: 'Bees fly.' })
  const clerk = await run('clerk', { say: '17' })
  const vague = await run('vague', { forwardedProps: { inputs: { one: 'a', two: 'b' } } })
  const asked = await run('ship', { say: 'v3' })
  const interrupts = asked.events.at(-1).outcome?.interrupts
  const done = await run('ship', { resume: [{ interruptId: interrupts[0].id, status: 'resolved', payload: { choice: 'ship it' } }] }, asked.agent)
  const bare = ({ agent, ...rest }) => rest
  found.agui = { poet: bare(poet), clerk: bare(clerk), vague: bare(vague), asked: bare(asked), interrupts, done: bare(done) }
}
console.log(JSON.stringify(found))
