package apitest

import "fmt"

// CheckSchema holds JSON against a schema of openapi.yaml, by its name, as
// strictly as answers are held: a member that the schema does not list is wrong.
func CheckSchema(name string, body []byte) error {
	d, err := load()
	if err != nil {
		return err
	}
	place := "/components/schemas/" + escape(name)
	if d.at(place) == nil {
		return fmt.Errorf("openapi.yaml has no schema %q", name)
	}
	return d.validate(place, body)
}
