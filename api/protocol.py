"""HTTP as uvicorn reads it, but what is not HTTP at all is answered in our form of errors, too."""

import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_HEAD = "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: "


class Protocol(HttpToolsProtocol):
    """uvicorn's protocol, which answers a broken request line, header or chunk as JSON."""

    def send_400_response(self, msg: str) -> None:
        message = f"{msg.rstrip('.')}: check the method, the headers and the chunks, and escape the URL"
        body = msgspec.json.encode({"error_code": 400, "message": message})
        self.transport.write(f"{_HEAD}{len(body)}\r\n\r\n".encode() + body)
        self.transport.close()
