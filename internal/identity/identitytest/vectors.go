// Package identitytest has bodies that are the same write, and bodies that are not,
// for the tests of every way a body can come in.
//
// What makes two bodies one is identity's to say; here are only the examples.
package identitytest

// Same are spellings of one body.
func Same() []string {
	return []string{
		`{"customer":"c","amount":4200}`,
		`{"amount":4200,"customer":"c"}`,
		"\n{ \"amount\" :\t4200 , \"customer\":\"c\" }\r",
		`{"amount":4200.0,"customer":"c"}`,
		`{"amount":42e2,"\u0063ustomer":"\u0063"}`,
	}
}

// Others are bodies of which no two are the same, nor any of Same.
func Others() []string {
	return []string{
		`{"customer":"c","amount":4201}`,
		`{"customer":"c","amount":"4200"}`,
		`{"customer":"c","amount":4200,"memo":null}`,
		`{"customer":"C","amount":4200}`,
		`{"customer":"\u00e9"}`, `{"customer":"e\u0301"}`,
		`{}`, `{"":{}}`, `{"a":[]}`, `{"a":{}}`,
	}
}
