package vendortest

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"strconv"
	"strings"
)

const jsonType = "Content-Type: application/json"

// bodyFaults have a whole head and a body that is cut, damaged or too much.
func bodyFaults() []Fault {
	zipped := Gzip(`{"id":"inv_1","amount":1200}`)
	badSum := []byte(zipped)
	badSum[len(badSum)-8] ^= 0xff
	length := func(s string) string { return "Content-Length: " + strconv.Itoa(len(s)) }
	return []Fault{
		{Name: "cut_length", Behaviour: Raw(head(200, jsonType, "Content-Length: 100") + `{"id":"inv_1"}`), Status: 200},
		{Name: "cut_length_empty", Behaviour: Raw(head(200, jsonType, "Content-Length: 100")), Status: 200},
		{Name: "reset_in_body", Behaviour: resetInBody, Status: 200},
		{Name: "hang_in_body", Behaviour: rawHang(head(200, jsonType, "Content-Length: 100") + `{"id":`), Hangs: true, Status: 200},
		{Name: "cut_chunked", Behaviour: Raw(head(200, jsonType, "Transfer-Encoding: chunked") + chunk(`{"id":"inv_1"}`)), Status: 200},
		{Name: "cut_chunked_in_chunk", Behaviour: Raw(head(200, jsonType, "Transfer-Encoding: chunked") + "20\r\n" + `{"id"`), Status: 200},
		{Name: "bad_chunk", Behaviour: Raw(head(200, jsonType, "Transfer-Encoding: chunked") + "zz\r\n{}\r\n0\r\n\r\n"), Status: 200},
		{Name: "cut_json_without_length", Behaviour: Raw(head(200, jsonType) + `{"id":"inv_1","amo`), Status: 200},
		{Name: "cut_json_without_length_or_type", Behaviour: Raw(head(200) + `{"id":"inv_1","amo`), Status: 200},
		{Name: "cut_empty_without_length", Behaviour: Raw(head(200, jsonType)), Status: 200},
		{Name: "cut_gzip_without_length", Behaviour: Raw(head(200, jsonType, "Content-Encoding: gzip") + zipped[:len(zipped)-6]), Status: 200},
		{Name: "cut_gzip", Behaviour: whole(200, "application/json", zipped[:len(zipped)-6], "Content-Encoding: gzip"), Status: 200},
		{Name: "gzip_bad_checksum", Behaviour: whole(200, "application/json", string(badSum), "Content-Encoding: gzip"), Status: 200},
		{Name: "not_gzip", Behaviour: whole(200, "application/json", `{"id":"inv_1","amount":1200}`, "Content-Encoding: gzip"), Status: 200},
		{Name: "brotli", Behaviour: whole(200, "application/json", "\x0b\x02\x80{}\x03", "Content-Encoding: br"), Status: 200},
		{Name: "gzip_twice", Behaviour: whole(200, "application/json", Gzip(zipped), "Content-Encoding: gzip, gzip"), Status: 200},
		{Name: "not_json", Behaviour: whole(200, "application/json", `{"id":`), Status: 200},
		{Name: "json_not_utf8", Behaviour: whole(200, "application/json", "{\"name\":\"Caf\xe9\"}"), Status: 200},
		{Name: "html_as_json", Behaviour: whole(200, "application/json", "<html></html>"), Status: 200},
		{Name: "gzip_bomb", Behaviour: gzipBomb, Status: 200},
		{Name: "bytes_after_answer", Behaviour: Raw(head(200, jsonType, length("{}")) + "{}HTTP/1.1 500 Late\r\n\r\n"), Status: 200},
	}
}

// goodAnswers are odd, and whole.
func goodAnswers() []Fault {
	zipped := Gzip(`{"id":"inv_1"}`)
	return []Fault{
		{Name: "ok_200", Behaviour: OK, Status: 200},
		{Name: "ok_201", Behaviour: Status(201), Status: 201},
		{Name: "ok_204", Behaviour: Status(204), Status: 204},
		{Name: "empty_200", Behaviour: whole(200, "application/json", ""), Status: 200},
		{Name: "null_200", Behaviour: whole(200, "application/json", "null"), Status: 200},
		{Name: "html_200", Behaviour: whole(200, "text/html; charset=utf-8", "<html>ok</html>"), Status: 200},
		{Name: "html_200_without_length", Behaviour: Raw(head(200, "Content-Type: text/html") + "<html>ok</html>"), Status: 200},
		{Name: "pdf_200", Behaviour: whole(200, "application/pdf", "%PDF-1.7\n\x00\xff\xfe"), Status: 200},
		{Name: "set_cookie", Behaviour: whole(200, "application/json", `{"ok":true}`, "Set-Cookie: session=s3cret; Path=/"), Status: 200},
		{Name: "gzip_200", Behaviour: whole(200, "application/json", zipped, "Content-Encoding: gzip"), Status: 200},
		{Name: "chunked_200", Behaviour: Raw(head(200, jsonType, "Transfer-Encoding: chunked") + chunk(`{"id":`) + chunk(`"inv_1"}`) + "0\r\n\r\n"), Status: 200},
		{Name: "json_without_length", Behaviour: Raw(head(200, jsonType) + `{"id":"inv_1"}`), Status: 200},
		{Name: "http_1_0", Behaviour: Raw("HTTP/1.0 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"), Status: 200},
		{Name: "large_200", Behaviour: large, Status: 200},
		{Name: "103_then_201", Behaviour: earlyHints, Status: 201},
		{Name: "100_then_200", Behaviour: Raw("HTTP/1.1 100 Continue\r\n\r\n" + head(200, jsonType, "Content-Length: 2") + "{}"), Status: 200},
	}
}

func earlyHints(c *Call) {
	c.ReadBody()
	c.Raw("HTTP/1.1 103 Early Hints\r\nLink: </style.css>; rel=preload\r\n\r\n")
	c.JSON(201, fmt.Sprintf(`{"arrival":%d}`, c.Arrival.Seq))
}

func resetInBody(c *Call) {
	c.ReadBody()
	c.Raw(head(200, jsonType, "Content-Length: 100") + `{"id":`)
	c.Reset()
}

// LargeBody is the length in bytes of the answer "large_200": 5 MiB of JSON.
const LargeBody = 5 << 20

func large(c *Call) {
	c.Respond(200, "application/json", `"`+strings.Repeat("a", LargeBody-2)+`"`)
}

// gzipBomb is 300 MiB of zeros in 300 kB: one compressed MiB, 300 times, which
// is one valid stream (RFC 1952 section 2.2).
func gzipBomb(c *Call) {
	member := Gzip(strings.Repeat("\x00", 1<<20))
	c.Respond(200, "application/octet-stream", strings.Repeat(member, 300), "Content-Encoding: gzip")
}

// Gzip compresses s.
func Gzip(s string) string {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	// Writing to memory does not fail.
	_, _ = z.Write([]byte(s))
	_ = z.Close()
	return out.String()
}

// chunk is one chunk of a chunked body (RFC 9112 section 7.1).
func chunk(s string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(s), s) }
