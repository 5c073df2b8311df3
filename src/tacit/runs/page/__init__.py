"""What the report page is made of: units, drawings, what its sections show, and templates."""
