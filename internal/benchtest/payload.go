package benchtest

import (
	"encoding/json"
	"fmt"
)

// invoices is a JSON answer of about n bytes, as a vendor's list or object reads:
// names that repeat, ids and amounts that do not.
func invoices(n, seed int) []byte {
	type line struct {
		ID       string `json:"id"`
		Object   string `json:"object"`
		Amount   int    `json:"amount"`
		Currency string `json:"currency"`
		Text     string `json:"description"`
		Paid     bool   `json:"paid"`
	}
	made := func(i int) line {
		return line{
			ID: fmt.Sprintf("il_%x", noise(8)), Object: "line_item", Amount: (seed*7919 + i*104729) % 100000,
			Currency: "eur", Text: fmt.Sprintf("Consulting in week %d", i%52), Paid: i%3 == 0,
		}
	}
	text := func(lines []line) []byte {
		// Strings and numbers always encode.
		text, _ := json.Marshal(map[string]any{
			"id": fmt.Sprintf("in_%x", noise(12)), "object": "invoice", "status": "open", "customer": "cus_9s6XKzkNRiz8i3",
			"created": 1790000000 + seed, "hosted_invoice_url": fmt.Sprintf("https://pay.example.com/i/%x", noise(16)), "lines": lines,
		})
		return text
	}
	lines := []line{made(0)}
	one := len(text(lines))
	each := len(text(append(lines, made(1)))) - one
	for i := 1; one+(i-1)*each < n; i++ {
		lines = append(lines, made(i))
	}
	return text(lines)
}
