"""Tool calls and reasoning, as clients see them.

  server_tools_test.py [PROGRAM] [unittest arguments]     as server_test.py
"""
import contextlib
import json
import os
import tempfile
import unittest

import jsonschema

from server_support import HELLO, MODEL, Server, main

BODY = "{% for t in tools or [] %}[{{ t.function.name }}]{% endfor %}{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
STYLES = {  # what a template mentions is what its model writes
    "hermes": "<tool_call>", "qwen coder": "<tool_call><function=", "glm": "<tool_call><arg_key>", "mistral": "[TOOL_CALLS]",
    "mistral, named": "[TOOL_CALLS][ARGS]", "llama": "<|python_tag|>", "gpt-oss": "<|channel|><|message|>", "none": "",
}
SCHEMA = {"type": "object", "additionalProperties": False, "required": ["city", "days"],
          "properties": {"city": {"type": "string", "maxLength": 12}, "days": {"type": "integer", "minimum": 1, "maximum": 7},
                         "unit": {"type": "string", "enum": ["C", "F"]},
                         "tags": {"type": "array", "items": {"type": "string", "maxLength": 5}, "maxItems": 2}}}
FUNCTION = {"name": "weather", "description": "Weather of a city", "parameters": SCHEMA}
TOOL = {"type": "function", "function": FUNCTION}
ANTHROPIC_TOOL = {"name": "weather", "input_schema": SCHEMA}
CHAT = {"messages": HELLO, "max_tokens": 1500, "temperature": 1, "tools": [TOOL]}


@contextlib.contextmanager
def server_of(template, *flags, model=MODEL):
    with tempfile.NamedTemporaryFile("w") as file:
        file.write(template)
        file.flush()
        server = Server("--chat-template-file", file.name, "--predict", "1500", *flags, model=model, context=4096)
        try:
            yield server
        finally:
            server.stop()


def good(server, path, body):
    status, _, reply = server.call("POST", path, body)
    assert status == 200, reply
    return reply


class Styles(unittest.TestCase):
    def test_required_calls_are_valid(self):
        for style, marks in STYLES.items():
            with self.subTest(style), server_of(BODY + "{# " + marks + " #}") as server:
                for seed in range(8):
                    # What gpt-oss thinks never ends in this model.
                    body = {**CHAT, "tool_choice": "required", "seed": seed, "reasoning_budget": 4,
                            "parallel_tool_calls": style != "mistral, named"}  # it calls on and on
                    choice = good(server, "/v1/chat/completions", body)["choices"][0]
                    self.assertEqual(choice["finish_reason"], "tool_calls", choice)
                    self.assertFalse(choice["message"]["content"], choice)
                    for call in choice["message"]["tool_calls"]:
                        self.assertEqual(call["function"]["name"], "weather")
                        jsonschema.validate(json.loads(call["function"]["arguments"]), SCHEMA)
                chunks = [json.loads(e) for e in server.events("/v1/chat/completions", body)[:-1]]
                calls = {}
                for chunk in chunks:
                    for call in chunk["choices"][0]["delta"].get("tool_calls", []) if chunk["choices"] else []:
                        if call["index"] not in calls:
                            self.assertEqual((call["function"]["name"], call["function"]["arguments"]), ("weather", ""))
                            self.assertTrue(call["id"])
                            calls[call["index"]] = []
                        else:
                            self.assertEqual(list(call["function"]), ["arguments"])
                            calls[call["index"]].append(call["function"]["arguments"])
                whole = [c["function"]["arguments"] for c in choice["message"]["tool_calls"]]
                self.assertEqual(["".join(parts) for parts in calls.values()], whole)
                self.assertGreater(max(map(len, calls.values())), 1)

    def test_a_template_that_knows_no_tools(self):
        with server_of("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}") as server:
            call = {"id": "c", "type": "function", "function": {"name": "weather", "arguments": "{\"city\": \"Rome\"}"}}
            messages = [{"role": "system", "content": "Be kind."}, *HELLO, {"role": "assistant", "tool_calls": [call]},
                        {"role": "tool", "tool_call_id": "c", "content": "Rain"}]
            prompt = good(server, "/apply-template", {**CHAT, "messages": messages})["prompt"]
            self.assertRegex(prompt, r"^system: Be kind.\s+Tools:\n\{\"name\":\"weather\"[^\n]*\n.*\"arguments\": \{\.\.\.\}")
            self.assertIn('assistant: {"name":"weather","arguments":{"city":"Rome"}}', prompt)
            self.assertRegex(prompt, r"user: Result of the tool:\s+Rain")
            choice = good(server, "/v1/chat/completions", {**CHAT, "tool_choice": "required", "seed": 1})["choices"][0]
            jsonschema.validate(json.loads(choice["message"]["tool_calls"][0]["function"]["arguments"]), SCHEMA)

    def test_strict_tools_are_free_not_to_be_called(self):
        with server_of(BODY + "{# <tool_call> #}") as server:
            strict = {**CHAT, "tools": [{"type": "function", "function": {**FUNCTION, "strict": True}}], "max_tokens": 20,
                      "temperature": 0}
            choice = good(server, "/v1/chat/completions", strict)["choices"][0]
            self.assertIn(choice["finish_reason"], ("length", "stop"))
            self.assertTrue(choice["message"]["content"])
            self.assertNotIn("tool_calls", choice["message"])


class Apis(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.context = server_of(BODY + "{# <tool_call> #}", "--alias", "m")
        cls.server = cls.context.__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.context.__exit__(None, None, None)

    def openai(self):
        import openai
        return openai.OpenAI(base_url=f"http://127.0.0.1:{self.server.port}/v1", api_key="none", max_retries=0)

    def anthropic(self):
        import anthropic
        return anthropic.Anthropic(base_url=f"http://127.0.0.1:{self.server.port}", api_key="none", max_retries=0)

    def test_openai_chat(self):
        named = {"type": "function", "function": {"name": "weather"}}
        body = {"model": "m", "messages": HELLO, "max_tokens": 1500, "tools": [TOOL], "seed": 3, "tool_choice": named}
        choice = self.openai().chat.completions.create(**body).choices[0]
        self.assertEqual((choice.finish_reason, len(choice.message.tool_calls)), ("tool_calls", 1))
        arguments = choice.message.tool_calls[0].function.arguments
        jsonschema.validate(json.loads(arguments), SCHEMA)
        with self.openai().chat.completions.stream(**body) as stream:
            final = stream.get_final_completion().choices[0]
        self.assertEqual(final.message.tool_calls[0].function.arguments, arguments)

    def test_openai_responses(self):
        tool = {"type": "function", **FUNCTION, "strict": True}
        body = {"model": "m", "input": "Hello", "max_output_tokens": 1500, "tools": [tool], "temperature": 1,
                "tool_choice": {"type": "function", "name": "weather"}, "extra_body": {"seed": 4}}
        reply = self.openai().responses.create(**body)
        self.assertEqual((reply.status, [i.type for i in reply.output]), ("completed", ["function_call"]))
        arguments = reply.output[0].arguments
        jsonschema.validate(json.loads(arguments), SCHEMA)
        events = list(self.openai().responses.create(**body, stream=True))
        deltas = [e.delta for e in events if e.type == "response.function_call_arguments.delta"]
        self.assertGreater(len(deltas), 1)
        self.assertEqual("".join(deltas), arguments)
        self.assertEqual([e.arguments for e in events if e.type == "response.function_call_arguments.done"], [arguments])

    def test_anthropic(self):
        body = {"model": "m", "messages": HELLO, "max_tokens": 1500, "tools": [ANTHROPIC_TOOL],
                "tool_choice": {"type": "any", "disable_parallel_tool_use": True}, "extra_body": {"seed": 5, "temperature": 1}}
        reply = self.anthropic().messages.create(**body)
        self.assertEqual((reply.stop_reason, [b.type for b in reply.content]), ("tool_use", ["tool_use"]))
        jsonschema.validate(reply.content[0].input, SCHEMA)
        with self.anthropic().messages.stream(**body) as stream:
            kinds = [e.type for e in stream]
            final = stream.get_final_message()
        self.assertEqual(final.content[0].input, reply.content[0].input)
        self.assertGreater(kinds.count("input_json"), 1)

    def test_only_allowed_tools_are_called(self):
        tools = [TOOL, {"type": "function", "function": {"name": "clock", "parameters": {"type": "object"}}}]
        of = {"type": "function", "function": {"name": "clock"}}
        for mode, seeds in (("required", 3), ("auto", 8)):
            choice = {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": [of]}}
            for seed in range(seeds):
                body = {**CHAT, "tools": tools, "tool_choice": choice, "seed": seed, "max_tokens": 200}
                found = good(self.server, "/v1/chat/completions", body)["choices"][0]
                names = {c["function"]["name"] for c in found["message"].get("tool_calls", [])}
                self.assertLessEqual(names, {"clock"})
                self.assertTrue(names or mode == "auto" or found["finish_reason"] == "length", found)
        # The model is shown all of them.
        shown = good(self.server, "/apply-template", {**CHAT, "tools": tools, "tool_choice": choice})["prompt"]
        self.assertEqual(shown, good(self.server, "/apply-template", {**CHAT, "tools": tools})["prompt"])
        reply = good(self.server, "/v1/responses", {
            "input": "Hello", "max_output_tokens": 1500, "seed": 1, "tools": [{"type": "function", **t["function"]} for t in tools],
            "tool_choice": {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "weather"}]}})
        self.assertEqual({i["name"] for i in reply["output"] if i["type"] == "function_call"}, {"weather"})

    def test_limits_claim_no_call(self):
        for max_tokens in (5, 60):  # before the call begins, and inside its arguments
            choice = good(self.server, "/v1/chat/completions",
                          {**CHAT, "tool_choice": "required", "max_tokens": max_tokens, "seed": 1})["choices"][0]
            self.assertEqual(choice["finish_reason"], "length")
            self.assertNotIn("tool_calls", choice["message"])
        messages = {"messages": HELLO, "max_tokens": 60, "seed": 1, "tools": [ANTHROPIC_TOOL], "tool_choice": {"type": "any"}}
        reply = good(self.server, "/v1/messages", messages)
        self.assertEqual((reply["stop_reason"], reply["content"]), ("max_tokens", []))
        response = {"input": "Hello", "max_output_tokens": 60, "seed": 1, "tools": [{"type": "function", **FUNCTION}],
                    "tool_choice": "required"}
        reply = good(self.server, "/v1/responses", response)
        self.assertEqual(reply["status"], "incomplete")
        self.assertEqual([(i["type"], i["status"]) for i in reply["output"]], [("function_call", "incomplete")])
        kinds = [json.loads(e)["type"] for e in self.server.events("/v1/responses", response)]
        self.assertIn("response.function_call_arguments.delta", kinds)
        self.assertNotIn("response.function_call_arguments.done", kinds)

    def test_what_cannot_be_asked(self):
        unique = {"type": "object", "properties": {"a": {"type": "array", "uniqueItems": True}}}
        function = lambda **fields: [TOOL, {"type": "function", "function": {"name": "g", **fields}}]
        for status, pattern, body in (
                (400, "tool_choice.*tools", {"tools": [], "tool_choice": "required"}),
                (400, "tool_choice.*nobody", {"tool_choice": {"type": "function", "function": {"name": "nobody"}}}),
                (400, "tool_choice", {"tool_choice": "sometimes"}),
                (400, "tool_choice.mode", {"tool_choice": {"type": "allowed_tools", "mode": "none", "tools": [TOOL]}}),
                (400, "tool_choice.tools.*at least one", {"tool_choice": {"type": "allowed_tools", "tools": []}}),
                (400, r"tool_choice.allowed_tools.tools\[0\].type", {"tool_choice": {
                    "type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [{"type": "mcp"}]}}}),
                (400, "tool_choice.*nobody", {"tool_choice": {
                    "type": "allowed_tools", "mode": "auto", "tools": [TOOL, {"type": "function", "name": "nobody"}]}}),
                (400, "tool_choice.type", {"tool_choice": {"type": "custom"}}),
                (400, r"tools\[1\].function.name", {"tools": [TOOL, {"type": "function", "function": {}}]}),
                (400, r"tools\[1\].function.name.*another", {"tools": [TOOL, TOOL]}),
                (400, r"tools\[1\].function.parameters", {"tools": function(parameters=5)}),
                (400, r"tools\[1\].function.parameters", {"tools": function(parameters={"type": "string"})}),
                (400, r"tools\[1\].function.parameters", {"tool_choice": "required", "tools": function(
                    parameters={"type": "object", "properties": {"a": {"type": "text"}}})}),
                (501, r"tools\[1\].function.parameters.*uniqueItems", {"tools": function(strict=True, parameters=unique)}),
                (501, r"tools\[0\].type", {"tools": [{"type": "retrieval"}]}),
                (400, "grammar", {"tool_choice": "required", "grammar": "root ::= \"a\""}),
                (400, "reasoning_effort", {"reasoning_effort": "extreme"}),
                (400, "reasoning_format", {"reasoning_format": "loud"}),
                (400, "reasoning_budget", {"reasoning_budget": -2}),
                (400, "chat_template_kwargs", {"chat_template_kwargs": [1]})):
            found, _, reply = self.server.call("POST", "/v1/chat/completions", {**CHAT, "max_tokens": 1, **body})
            self.assertEqual(found, status, (body, reply))
            self.assertRegex(reply["error"]["message"], pattern)
        for pattern, body in ((r"tools\[0\].name", {"tools": [{"input_schema": {}}]}),
                              (r"tools\[0\].input_schema", {"tools": [{"name": "f", "input_schema": 5}]}),
                              ("tool_choice.type", {"tool_choice": {"type": "required"}}),
                              ("thinking.type", {"thinking": {"type": "on"}}),
                              ("thinking.budget_tokens", {"thinking": {"type": "enabled", "budget_tokens": "much"}})):
            found, _, reply = self.server.call("POST", "/v1/messages", {"messages": HELLO, "max_tokens": 1, **body})
            self.assertEqual(found, 400, (body, reply))
            self.assertRegex(reply["error"]["message"], pattern)

    def test_schema_or_call(self):
        schema = {"type": "json_schema", "json_schema": {"schema": {"type": "integer"}}}
        choice = good(self.server, "/v1/chat/completions", {**CHAT, "response_format": schema, "seed": 2})["choices"][0]
        if "tool_calls" not in choice["message"]:
            int(choice["message"]["content"])
        reply = good(self.server, "/v1/messages", {"messages": HELLO, "max_tokens": 50, "output_config": {
            "format": {"type": "json_schema", "schema": {"type": "integer", "minimum": 1, "maximum": 9}}}})
        self.assertIn(reply["content"][0]["text"].strip(), list("123456789"))

    def test_no_tool_where_none_may_be_called(self):
        prompt = good(self.server, "/apply-template", {**CHAT, "tool_choice": "none"})["prompt"]
        self.assertNotIn("[weather]", prompt)
        self.assertIn("[weather]", good(self.server, "/apply-template", CHAT)["prompt"])


class Reasoning(unittest.TestCase):
    THINKS = "{{ enable_thinking }}{{ color }}{{ reasoning_effort }}" + BODY + "<think>\n"

    def test_budget(self):
        with server_of(BODY + "<think>\n{# </think> <tool_call> #}", "--reasoning-budget", "4") as server:
            chat = {"messages": HELLO, "max_tokens": 30, "temperature": 0, "ignore_eos": True}
            def answer(**fields):
                message = good(server, "/v1/chat/completions", {**chat, **fields})["choices"][0]["message"]
                return message.get("reasoning_content", ""), message["content"]
            thought, content = answer()
            self.assertTrue(thought and content, (thought, content))
            more, content = answer(reasoning_budget=6)
            self.assertTrue(content)
            self.assertTrue(more.startswith(thought) and len(more) > len(thought), (thought, more))
            self.assertEqual(answer(reasoning_budget=-1)[1], "")
            self.assertEqual(answer(reasoning_budget=0)[0], "")
            self.assertEqual(answer(reasoning_effort="none")[0], "")
            call = {"max_tokens": 1500, "messages": HELLO, "tools": [ANTHROPIC_TOOL], "seed": 1, "temperature": 1,
                    "tool_choice": {"type": "any", "disable_parallel_tool_use": True}}
            blocks = good(server, "/v1/messages", {**call, "thinking": {"type": "enabled", "budget_tokens": 12}})["content"]
            self.assertEqual([b["type"] for b in blocks], ["thinking", "tool_use"])
            blocks = good(server, "/v1/messages", {**chat, "thinking": {"type": "disabled"}})["content"]
            self.assertNotIn("thinking", [b["type"] for b in blocks])
            reply = good(server, "/v1/responses", {"input": "Hello", "max_output_tokens": 30, "temperature": 0,
                                                   "reasoning": {"effort": "none"}})
            self.assertNotIn("reasoning", [i["type"] for i in reply["output"]])
            # A call that must come, behind reasoning that is cut short.
            choice = good(server, "/v1/chat/completions", {**CHAT, "tool_choice": "required", "seed": 1})["choices"][0]
            self.assertTrue(choice["message"]["reasoning_content"])
            jsonschema.validate(json.loads(choice["message"]["tool_calls"][0]["function"]["arguments"]), SCHEMA)

    def test_what_the_template_hears(self):
        kwargs = ("--chat-template-kwargs", '{"color": "red"}', "--reasoning-format", "none")
        with server_of(self.THINKS, *kwargs) as server:
            def prompt(**fields):
                return good(server, "/apply-template", {"messages": HELLO, **fields})["prompt"].split("user")[0]
            self.assertIn("red", prompt())
            self.assertIn("blue", prompt(chat_template_kwargs={"color": "blue"}))
            self.assertIn("False", prompt(reasoning_effort="none"))
            self.assertIn("high", prompt(reasoning_effort="high"))
            self.assertIn("False", prompt(reasoning_budget=0))
            self.assertIn("True", prompt(reasoning_budget=0, chat_template_kwargs={"enable_thinking": True}))
            message = good(server, "/v1/chat/completions", {"messages": HELLO, "max_tokens": 5})["choices"][0]["message"]
            self.assertNotIn("reasoning_content", message)


if __name__ == "__main__":
    main()
