/** What JSON, XML, CSV and JSV have in common: values, lists and named members. */
export type Tree = null | boolean | number | string | Tree[] | { [member: string]: Tree }
