"""What the report page is made of: units, drawings, sections and one template."""
