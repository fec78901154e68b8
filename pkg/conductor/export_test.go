package conductor

// SetBodyLimit lowers the bound on answers: reading the real one takes minutes
// under -race.
func (c *Client) SetBodyLimit(bytes int64) { c.through.limit = bytes }

// BodyLimit is the bound on answers.
func (c *Client) BodyLimit() int64 { return c.through.limit }
