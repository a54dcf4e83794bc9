#include "fixtures.h"

#include "loop/wait.h"

#include <stdlib.h>

enum {
        SIMPLE_TEXT,
        IMAGE,
        AUDIO,
        EMBEDDED,
        MIXED,
        LOGGING,
        ERROR,
        PROGRESS,
        SCHEMA,
        RECONNECTION,
        MISSING_CAPABILITY,
        STREAMING,
        LOGGING_TOOL,
        TOOL_CHANGE,
        CUSTOM_HEADER,
};

#define NO_ARGUMENTS "{\"type\":\"object\",\"properties\":{},\"additionalProperties\":false}"
#define LISTING(name, what, schema) "{\"name\":\"" name "\",\"description\":\"" what "\",\"inputSchema\":" schema "}"
#define PLAIN(name, what, id)                                            \
        {                                                                \
                name, LISTING(name, what, NO_ARGUMENTS), 20000, id, NULL \
        }

/* The keywords that must come through tools/list as they are. */
#define SCHEMA_2020_12                                                                                               \
        "{\"$schema\":\"https://json-schema.org/draft/2020-12/schema\",\"type\":\"object\","                         \
        "\"$defs\":{\"address\":{\"$anchor\":\"addressDef\",\"type\":\"object\",\"properties\":{"                    \
        "\"street\":{\"type\":\"string\"},\"city\":{\"type\":\"string\"}}}},"                                        \
        "\"properties\":{\"name\":{\"type\":\"string\"},\"address\":{\"$ref\":\"#/$defs/address\"},"                 \
        "\"contactMethod\":{\"type\":\"string\",\"enum\":[\"phone\",\"email\"]},\"phone\":{\"type\":\"string\"},"    \
        "\"email\":{\"type\":\"string\"}},\"allOf\":[{\"anyOf\":[{\"required\":[\"phone\"]},"                        \
        "{\"required\":[\"email\"]}]}],\"if\":{\"properties\":{\"contactMethod\":{\"const\":\"phone\"}},"            \
        "\"required\":[\"contactMethod\"]},\"then\":{\"required\":[\"phone\"]},\"else\":{\"required\":[\"email\"]}," \
        "\"additionalProperties\":false}"

#define CUSTOM_HEADER_SCHEMA                                                                                  \
        "{\"type\":\"object\",\"properties\":{\"region\":{\"type\":\"string\",\"x-mcp-header\":\"Region\"}}," \
        "\"required\":[\"region\"],\"additionalProperties\":false}"

const struct mcp_tool fixtures[] = {
        PLAIN("test_simple_text", "Gives a text.", SIMPLE_TEXT),
        PLAIN("test_image_content", "Gives an image.", IMAGE),
        PLAIN("test_audio_content", "Gives a sound.", AUDIO),
        PLAIN("test_embedded_resource", "Gives a resource.", EMBEDDED),
        PLAIN("test_multiple_content_types", "Gives a text, an image and a resource.", MIXED),
        PLAIN("test_tool_with_logging", "Writes three log lines.", LOGGING),
        PLAIN("test_error_handling", "Always fails.", ERROR),
        PLAIN("test_tool_with_progress", "Reports progress.", PROGRESS),
        { "json_schema_2020_12_tool", LISTING("json_schema_2020_12_tool", "Has a schema.", SCHEMA_2020_12), 20000,
          SCHEMA, NULL },
        PLAIN("test_reconnection", "Ends its connection and answers on the next one.", RECONNECTION),
        { "test_missing_capability", LISTING("test_missing_capability", "Needs sampling.", NO_ARGUMENTS), 20000,
          MISSING_CAPABILITY, "sampling" },
        PLAIN("test_streaming_elicitation", "Answers on a stream.", STREAMING),
        PLAIN("test_logging_tool", "Writes a log line.", LOGGING_TOOL),
        PLAIN("test_trigger_tool_change", "Says that the tools have changed.", TOOL_CHANGE),
        { "test_custom_header",
          LISTING("test_custom_header", "Has an argument that a header repeats.", CUSTOM_HEADER_SCHEMA), 20000,
          CUSTOM_HEADER, NULL },
};
const size_t fixture_count = ARRAY_LEN(fixtures);

/* One red pixel. */
static const unsigned char png[] = {
        0x89, 'P',  'N',  'G', '\r', '\n', 0x1a, '\n', 0,    0,    0,    13,   'I',  'H',  'D',  'R', 0, 0,
        0,    1,    0,    0,   0,    1,    8,    2,    0,    0,    0,    0x90, 0x77, 0x53, 0xde, 0,   0, 0,
        12,   'I',  'D',  'A', 'T',  0x78, 0x9c, 0x63, 0xf8, 0xcf, 0xc0, 0,    0,    3,    1,    1,   0, 0xc9,
        0xfe, 0x92, 0xef, 0,   0,    0,    0,    'I',  'E',  'N',  'D',  0xae, 0x42, 0x60, 0x82,
};

/* A WAV file of one sample: 44 bytes of head, base64. */
static const char audio[] = "{\"type\":\"audio\",\"mimeType\":\"audio/wav\",\"data\":"
                            "\"UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQIAAAAAAA==\"}";
static const char embedded[] =
        "{\"type\":\"resource\",\"resource\":{\"uri\":\"test://embedded-resource\",\"mimeType\":\"text/plain\","
        "\"text\":\"This is an embedded resource content.\"}}";
static const char mixed[] =
        "{\"type\":\"resource\",\"resource\":{\"uri\":\"test://mixed-content-resource\","
        "\"mimeType\":\"application/json\",\"text\":\"{\\\"test\\\":\\\"data\\\",\\\"value\\\":123}\"}}";

static void coroutine_fn log_lines(struct mcp_request *r)
{
        mcp_message(r, "Tool execution started");
        (void) coro_sleep(50);
        mcp_message(r, "Tool processing data");
        (void) coro_sleep(50);
        mcp_message(r, "Tool execution completed");
        mcp_result_text(r, "Tool with logging executed successfully");
}

static void coroutine_fn progress(struct mcp_request *r)
{
        for (int i = 0; i <= 2; i++) {
                mcp_progress(r, 50.0 * i, 100, "on the way");
                if (i < 2)
                        (void) coro_sleep(50);
        }
        mcp_result_text(r, "Tool with progress executed successfully");
}

static void coroutine_fn reconnect(struct mcp_request *r)
{
        bool polled = mcp_poll(r, 500);

        (void) coro_sleep(100);
        mcp_result_text(r, "Reconnection test completed%s", polled ? "" : " without a reconnection");
}

static void content(struct mcp_request *r, int id)
{
        if (id == SIMPLE_TEXT)
                mcp_result_text(r, "This is a simple text response for testing.");
        if (id == MIXED)
                mcp_result_text(r, "Multiple content types test:");
        if (id == IMAGE || id == MIXED)
                mcp_result_image(r, "image/png", png, sizeof png);
        if (id == AUDIO)
                mcp_result_block(r, str_of(audio));
        if (id == EMBEDDED || id == MIXED)
                mcp_result_block(r, str_of(id == MIXED ? mixed : embedded));
        if (id == ERROR)
                mcp_fail(r, "This tool intentionally returns an error for testing");
}

int coroutine_fn fixtures_call(struct mcp_request *r, const struct mcp_tool *tool, const struct json *args, void *arg)
{
        struct mcp_server **s = mcp_user(r);

        switch (tool->id) {
        case LOGGING:
                log_lines(r);
                break;
        case PROGRESS:
                progress(r);
                break;
        case RECONNECTION:
                reconnect(r);
                break;
        case LOGGING_TOOL:
                mcp_message(r, "a line that nobody may get who did not ask for lines");
                mcp_result_text(r, "logged");
                break;
        case STREAMING: /* without elicitation, which this server never asks for: the answer streams all the same */
                mcp_progress(r, 1, 0, NULL);
                mcp_result_text(r, "streamed");
                break;
        case TOOL_CHANGE:
                mcp_tools_changed(*s);
                mcp_result_text(r, "told");
                break;
        case SCHEMA:
        case MISSING_CAPABILITY:
        case CUSTOM_HEADER:
                mcp_result_text(r, "done");
                break;
        default:
                content(r, tool->id);
        }
        return 0;
}
