// Package api is Holdfast's HTTP front: it decodes a request, finds out who
// asks, calls the package that knows, and encodes what it said.
//
// The package owns every word of HTTP: the one table of routes and who may call
// them (routes.go), the one table of codes and their statuses (problem.go), the
// form of requests and answers, and openapi.yaml is its description. Nothing
// else in Holdfast knows a status or a header of its own API.
//
// It decides nothing about writes. What became of one, whether it may be sent,
// what an agent should do next come from actions; accounts, keys and
// connections from tenants and connections; rows from audit. Listeners, TLS and
// the order of start and stop are the program's.
package api
