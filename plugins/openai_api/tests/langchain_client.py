"""LangChain talks over the endpoint of its argument, and approves if the second one says so."""

import sys

from langchain_openai import ChatOpenAI

url, responses = sys.argv[1], sys.argv[2] == "responses"
model = ChatOpenAI(
    model="desk", base_url=url, api_key="any", use_responses_api=responses, max_retries=0
)
print("".join(chunk.text for chunk in model.stream("hello")))
if responses:
    asked = {"role": "user", "content": "delete a"}
    first = model.invoke([asked])
    (request,) = [block for block in first.content if block.get("type") == "mcp_approval_request"]
    answer = {
        "type": "mcp_approval_response",
        "approval_request_id": request["id"],
        "approve": True,
    }
    print(model.invoke([asked, first, {"role": "user", "content": [answer]}]).text)
